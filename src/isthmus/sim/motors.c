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
       I_STICTION, I_INNER, I_BLOCKS, I_TABLE };
enum { U_TICK, U_LAST, U_DELAY, U_SENSOR_DELAY };
enum { KP, KD, STRENGTH, TORQUE, SPEED, COULOMB, VISCOUS, LAG, SPRING, ROTOR, STRIBECK, STRIBECK_SPEED, LOAD, BACKLASH };
enum { LAGGED, THETA, OMEGA };
enum { POSITION, EFFORT, NATIVE };
enum { ACCELERATION = 3 };
enum { F_LAG = 1, F_LINE = 2, F_FRICTION = 4, F_SPRING = 8, F_JOINTS = 16, F_RICH = 32, F_BACKLASH = 64 };

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

// The motor's side of a gear with play follows its target; the link feels it where the teeth touch.
static double through_play(double u, double q, double qd, const double* p, int m, int flags, double dt, mjtNum* rotor,
                           int advance) {
  const double theta = u + exp(-dt * p[KP * m] / p[KD * m]) * (*rotor - u);
  const double low = q - p[BACKLASH * m], high = q + p[BACKLASH * m], held = clip(theta, low, high);
  if (advance) *rotor = held;
  const double tau = motor(u, held, qd, p, m, POSITION, flags);
  if (theta >= high) return tau > 0.0 ? tau : 0.0;
  if (theta <= low) return tau < 0.0 ? tau : 0.0;
  return 0.0;
}

// Acceleration without gravity of the free body whose degrees of freedom begin at dof, in its own frame.
static void accelerometer(const mjModel* model, const mjData* data, int dof, mjtNum* out) {
  const mjtNum* q = data->qpos + model->jnt_qposadr[model->dof_jntid[dof]] + 3;
  const double w = q[0], x = q[1], y = q[2], z = q[3];
  const double a = data->qacc_warmstart[dof] - model->opt.gravity[0], b = data->qacc_warmstart[dof + 1] - model->opt.gravity[1],
               c = data->qacc_warmstart[dof + 2] - model->opt.gravity[2];
  out[0] = (1 - 2 * (y * y + z * z)) * a + 2 * (x * y + w * z) * b + 2 * (x * z - w * y) * c;
  out[1] = 2 * (x * y - w * z) * a + (1 - 2 * (x * x + z * z)) * b + 2 * (y * z + w * x) * c;
  out[2] = 2 * (x * z + w * y) * a + 2 * (y * z - w * x) * b + (1 - 2 * (x * x + y * y)) * c;
}

// Physics warnings are read from the batch's counters; MuJoCo would also print each of them for each world.
void isthmus_warning(const char* message) { (void)message; }

void isthmus_control(const mjModel* model, mjData* data) {
  if (!model->nnumeric) return;
  const mjtNum* w = model->numeric_data + model->numeric_adr[model->nnumeric - 1];
  if (w[I_MARK] != MARK) return;
  const int m = (int)w[I_MOTORS], drive = (int)w[I_DRIVE], flags = (int)w[I_FLAGS];
  const int substeps = (int)w[I_SUBSTEPS], depth = (int)w[I_DEPTH], width = (int)w[I_WIDTH];
  const double stiction = w[I_STICTION], dt = model->opt.timestep;
  const int inner = (int)w[I_INNER], blocks = (int)w[I_BLOCKS];
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
    } else {
      const mjtNum* from = array == 0 ? data->qpos : (array == 1 ? data->qvel : data->sensordata);
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
  const mjtNum* params = user + (int)w[I_PARAMS];
  mjtNum* state = user + (int)w[I_STATE];
  mjtNum* restrict out = data->ctrl;
  for (int i = 0; i < m; i++) out[i] = old[i] + fresh * (new[i] - old[i]);
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
    double tau = flags & F_BACKLASH ? through_play(out[i], q, qd, p, m, flags, dt, state + THETA * m + i, advance)
                                    : motor(out[i], q, qd, p, m, drive, flags);
    out[i] = flags & F_FRICTION ? tau - friction(qd, tau, p, m, flags, stiction) : tau;
  }
}
