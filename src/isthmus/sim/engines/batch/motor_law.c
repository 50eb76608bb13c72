// The motor law of actuators.py inside the physics step, so that a control tick is one call for all worlds.
//
// MuJoCo calls isthmus_control before each physics step of each world. Everything it needs is in the model (the
// numeric field that wiring.py adds) and in the world's own userdata, so it is safe on any number of threads, a
// world stepped alone gives the same numbers, and a model without our mark is left alone.
// The arithmetic follows actuators.py term by term; a test holds the two equal.

#include <math.h>
#include <string.h>
#include <mujoco/mujoco.h>

#define MARK 19150815.0
enum { I_MARK, I_MOTORS, I_DRIVE, I_FLAGS, I_SUBSTEPS, I_SENT, I_DEPTH, I_WIDTH, I_TARGETS, I_PARAMS, I_STATE, I_RING,
       I_MEMORY, I_PAST, I_FORCE, I_LEARNED, I_STICTION, I_INNER, I_BLOCKS, I_TABLE };
enum { U_TICK, U_LAST, U_DELAY, U_SENSOR_DELAY };
enum { KP, KD, STRENGTH, TORQUE, SPEED, COULOMB, VISCOUS, LAG, SPRING, ROTOR, STRIBECK, STRIBECK_SPEED, LOAD, BACKLASH };
enum { LAGGED, THETA, OMEGA, TOUCH };
enum { POSITION, EFFORT, NATIVE };
enum { SENSORS = 2, ACCELERATION, ROTOR_ANGLE, ROTOR_SPEED };
enum { F_LAG = 1, F_LINE = 2, F_FRICTION = 4, F_SPRING = 8, F_JOINTS = 16, F_RICH = 32, F_BACKLASH = 64, F_BORROWED = 128 };

static double clip(double x, double low, double high) { return x < low ? low : (x > high ? high : x); }

static double friction(double qd, double tau, const double* p, int m, int flags, double stiction) {
  double level = p[COULOMB * m];
  if (flags & F_RICH) {
    const double part = qd / p[STRIBECK_SPEED * m];
    level = level + p[STRIBECK * m] * exp(-(part * part)) + p[LOAD * m] * fabs(tau);
  }
  return level * clip(qd * (1.0 / stiction), -1.0, 1.0) + p[VISCOUS * m] * qd;
}

static double motor(double u, double q, double qd, const double* p, int m, int drive, int flags) {
  double demand = drive == POSITION ? p[KP * m] * (u - q) - p[KD * m] * qd : u;
  double limit = p[TORQUE * m];
  demand = demand * p[STRENGTH * m];
  if (!(flags & F_LINE)) return clip(demand, -limit, limit);
  double slope = qd * (limit / p[SPEED * m]);
  return clip(demand, clip(-limit - slope, -limit, limit), clip(limit - slope, -limit, limit));
}

// What encoders on rotors show: with play, the link's angle and speed where the teeth touch.
static double rotor_angle(const double* p, const mjtNum* state, int m, int flags, double q) {
  if (flags & F_SPRING) return state[THETA * m];
  const double play = p[BACKLASH * m], touch = state[TOUCH * m];
  return touch != 0.0 ? q + touch * play : clip(state[THETA * m], q - play, q + play);
}

static double rotor_speed(const mjtNum* state, int m, double qd) { return state[TOUCH * m] != 0.0 ? qd : state[OMEGA * m]; }

// A rotor inside the play of its gear; at either end it goes on with the link, which gets its momentum.
static double through_play(double u, double q, double qd, const double* p, int m, int drive, int flags, double stiction, double dt,
                           int inner, mjtNum* state, double taken, int advance) {
  const double h = dt / inner, play = p[BACKLASH * m];
  const double J = p[ROTOR * m] > h * p[KD * m] ? p[ROTOR * m] : h * p[KD * m];
  const int free = state[TOUCH * m] == 0.0;
  double theta = rotor_angle(p, state, m, flags, q), omega = rotor_speed(state, m, qd), side = 0.0, hit = 0.0, passed = 0.0;
  if (!free) taken = 0.0;
  for (int k = 0; k < inner; k++) {
    const double link = q + qd * ((k + 1) * h);
    const double tau = motor(u, theta, omega, p, m, drive, flags);
    omega = omega + (tau - friction(omega, tau, p, m, flags, stiction)) * (h / J);
    theta = theta + h * omega;
    side = 0.0;
    if (theta >= link + play && omega >= qd) side = 1.0;
    if (theta <= link - play && omega <= qd) side = -1.0;
    if (free && hit == 0.0) hit = side;
    if (hit != 0.0) side = hit;
    if (side != 0.0) {
      passed += J * (omega - qd);
      omega = qd;
    } else {
      passed += taken * h;
    }
    theta = hit != 0.0 ? link + hit * play : clip(theta, link - play, link + play);
  }
  if (advance) { state[THETA * m] = theta; state[OMEGA * m] = omega; state[TOUCH * m] = side; }
  return passed / dt;
}

#include "learned_forces.h"

// Acceleration without gravity of the free body whose degrees of freedom begin at dof, in its own frame.
static void accelerometer(const mjModel* model, const mjData* data, int dof, mjtNum* out) {
  double free[3];
  for (int k = 0; k < 3; k++) free[k] = data->qacc_warmstart[dof + k] - model->opt.gravity[k];
  unrotate(data->qpos + model->jnt_qposadr[model->dof_jntid[dof]] + 3, free, out);
}

// Physics warnings are read from the batch's counters; MuJoCo would also print each of them for each world.
void isthmus_warning(const char* message) { (void)message; }

// The torques of the motors from the targets that have arrived, both in ctrl.
static void motors(const mjtNum* w, const mjtNum* qcol, const mjtNum* vcol, mjtNum* user, mjData* data, int advance, double dt) {
  const int m = (int)w[I_MOTORS], drive = (int)w[I_DRIVE], flags = (int)w[I_FLAGS], inner = (int)w[I_INNER];
  const double stiction = w[I_STICTION];
  const mjtNum* params = user + (int)w[I_PARAMS];
  mjtNum* state = user + (int)w[I_STATE];
  mjtNum* restrict out = data->ctrl;
  if (flags & F_LAG) {
    for (int i = 0; i < m; i++) {
      mjtNum* y = state + LAGGED * m + i;
      out[i] = out[i] + exp(-dt / params[LAG * m + i]) * (*y - out[i]);
      if (advance) *y = out[i];
    }
  }
  if (drive == NATIVE) return;
  if (!(flags & F_JOINTS)) {
    for (int i = 0; i < m; i++) {
      double limit = params[TORQUE * m + i];
      out[i] = clip(params[STRENGTH * m + i] * out[i], -limit, limit);
    }
    return;
  }
  if (flags & F_SPRING) {
    const double h = dt / inner;
    for (int i = 0; i < m; i++) {
      const mjtNum* p = params + i;
      double q = data->qpos[(int)qcol[i]], qd = data->qvel[(int)vcol[i]], u = out[i], total = 0.0;
      double theta = state[THETA * m + i], omega = state[OMEGA * m + i];
      for (int k = 0; k < inner; k++) {
        double load = p[SPRING * m] * (theta - (q + qd * (k * h)));
        double tau = motor(u, theta, omega, p, m, drive, flags);
        double drv = tau - friction(omega, tau, p, m, flags, stiction);
        omega = omega + h * (drv - load) / p[ROTOR * m];
        theta = theta + h * omega;
        total += load;
      }
      if (advance) { state[THETA * m + i] = theta; state[OMEGA * m + i] = omega; }
      out[i] = total / inner;
    }
    return;
  }
  for (int i = 0; i < m; i++) {
    const mjtNum* p = params + i;
    double q = data->qpos[(int)qcol[i]], qd = data->qvel[(int)vcol[i]];
    if (flags & F_BACKLASH) {
      out[i] = through_play(out[i], q, qd, p, m, drive, flags, stiction, dt, inner, state + i,
                            flags & F_BORROWED ? p[ROTOR * m] * data->qacc_warmstart[(int)vcol[i]] : 0.0, advance);
      continue;
    }
    double tau = motor(out[i], q, qd, p, m, drive, flags);
    out[i] = flags & F_FRICTION ? tau - friction(qd, tau, p, m, flags, stiction) : tau;
  }
}

void isthmus_control(const mjModel* model, mjData* data) {
  if (!model->nnumeric) return;
  const mjtNum* w = model->numeric_data + model->numeric_adr[model->nnumeric - 1];
  if (w[I_MARK] != MARK) return;
  const int m = (int)w[I_MOTORS], substeps = (int)w[I_SUBSTEPS], depth = (int)w[I_DEPTH], width = (int)w[I_WIDTH];
  const int blocks = (int)w[I_BLOCKS];
  const double dt = model->opt.timestep;
  const mjtNum* block = w + I_TABLE;
  const mjtNum* qcol = block + 3 * blocks;
  const mjtNum* vcol = qcol + m;
  mjtNum* user = data->userdata;

  // 1. Remember what the sensors would have seen, for signals that are read late.
  long step = data->time > 0 ? (long)(data->time / dt + 0.5) : 0;
  mjtNum* slot = user + (int)w[I_RING] + (step % depth) * width;
  for (int i = 0; i < blocks; i++, block += 3) {
    const int array = (int)block[0], start = (int)block[1], count = (int)block[2];
    if (array == ACCELERATION) {
      accelerometer(model, data, start, slot);
    } else if (array == ROTOR_ANGLE || array == ROTOR_SPEED) {
      for (int k = start; k < start + count; k++) {
        const mjtNum* own = user + (int)w[I_STATE] + k;
        slot[k - start] = array == ROTOR_SPEED ? rotor_speed(own, m, data->qvel[(int)vcol[k]])
                                               : rotor_angle(user + (int)w[I_PARAMS] + k, own, m, (int)w[I_FLAGS],
                                                             data->qpos[(int)qcol[k]]);
      }
    } else if (array != SENSORS) {  // which a worker's data has of another world at the beginning of a call
      const mjtNum* from = array == 0 ? data->qpos : data->qvel;
      for (int k = 0; k < count; k++) slot[k] = from[start + k];
    }
    slot += count;
  }

  // 2. Which target has arrived: the mean over this step of the old one and the new one.
  double start = (double)(long)((data->time - user[U_TICK]) / dt + 0.5) - user[U_DELAY] / dt;
  double tick = floor(start / substeps + 1e-12);
  const int sent = (int)w[I_SENT];
  const int back = tick > 0 ? 0 : ((int)-tick < sent ? (int)-tick : sent - 1);
  const double fresh = clip(start + 1.0 - (tick + 1.0) * substeps, 0.0, 1.0);
  const mjtNum* old = user + (int)w[I_TARGETS] + back * m;
  const mjtNum* new = user + (int)w[I_TARGETS] + (back > 0 ? back - 1 : 0) * m;

  // 3. The motors. Their own state moves once per step, however often the integrator asks.
  const int advance = !(fabs(data->time - user[U_LAST]) < 0.5 * dt);
  user[U_LAST] = data->time;
  mjtNum* restrict out = data->ctrl;
  for (int i = 0; i < m; i++) out[i] = old[i] + fresh * (new[i] - old[i]);
  motors(w, qcol, vcol, user, data, advance, dt);

  // 4. What was learned from recordings, on top of a force that was asked for.
  const int learned = (int)w[I_LEARNED];
  if (!learned) return;
  const int past = (int)w[I_PAST], now = past ? (int)(step % past) : 0;
  mjtNum* memory = user + (int)w[I_MEMORY];
  if (past) {
    for (int i = 0; i < m; i++) {
      const double u = old[i] + fresh * (new[i] - old[i]);
      memory[(now * 2) * m + i] = w[I_DRIVE] == EFFORT ? u : u - data->qpos[(int)qcol[i]];
      memory[(now * 2 + 1) * m + i] = data->qvel[(int)vcol[i]];
    }
  }
  for (int i = 0; i < model->nv; i++) data->qfrc_applied[i] = user[(int)w[I_FORCE] + i];
  const mjtNum* table = w + learned;
  for (int count = (int)*table++; count > 0; count--, table += (int)table[L_LENGTH]) {
    if (table[L_KIND] == 0.0) body_force(table, model, data);
    else motor_force(table, memory, past, now, m, vcol, data);
  }
}
