// Learned forces inside the physics step: the arithmetic of learned.py and features.py, term by term.
//
// Each force is a run of numbers that force_table (table.py) writes:
//   length, kind, features F, outputs O, members K, layers L, reach, doubt, fade, L layer sizes,
//   body:  R, R x (how, column, other), N, N x (dof, column of qpos or -1)
//   motor: G, G x motor, B, B x steps back
//   mean F, 1 / scale F, root F x F, unit O, then for each member and layer its weights (inputs x outputs) and biases

enum { L_LENGTH, L_KIND, L_FEATURES, L_OUTPUTS, L_MEMBERS, L_LAYERS, L_REACH, L_DOUBT, L_FADE, L_SIZES };
enum { R_QPOS, R_SINE, R_COSINE, R_QVEL, R_CTRL, R_GRAVITY, R_LINEAR };
enum { MOST_FEATURES = 256, MOST_HIDDEN = 64, MOST_MEMBERS = 16 };

// A vector of the world in the frame of a body with orientation q.
static void unrotate(const mjtNum* q, const double* v, double* out) {
  const double w = q[0], x = q[1], y = q[2], z = q[3], a = v[0], b = v[1], c = v[2];
  out[0] = (1 - 2 * (y * y + z * z)) * a + 2 * (x * y + w * z) * b + 2 * (x * z - w * y) * c;
  out[1] = 2 * (x * y - w * z) * a + (1 - 2 * (x * x + z * z)) * b + 2 * (y * z + w * x) * c;
  out[2] = 2 * (x * z + w * y) * a + 2 * (y * z - w * x) * b + (1 - 2 * (x * x + y * y)) * c;
}

// f(x) of an ensemble whose numbers begin at `net`, as parts of its unit times its unit.
static void ensemble(const double* t, const double* net, const double* x, double* f) {
  const int F = (int)t[L_FEATURES], O = (int)t[L_OUTPUTS], K = (int)t[L_MEMBERS], L = (int)t[L_LAYERS];
  const double *mean = net, *inverse = mean + F, *root = inverse + F, *unit = root + F * F, *w = unit + O;
  double z[MOST_FEATURES], h[2][MOST_FEATURES], total[MOST_FEATURES], each[MOST_MEMBERS][MOST_FEATURES];
  double squares = 0.0;
  for (int i = 0; i < F; i++) z[i] = (x[i] - mean[i]) * inverse[i];
  for (int i = 0; i < F; i++) {
    double sum = 0.0;
    for (int j = 0; j <= i; j++) sum += root[i * F + j] * z[j];
    squares += sum * sum;
  }
  const double distance = sqrt(squares / F) / t[L_REACH];
  const double inside = clip((t[L_FADE] - distance) / (t[L_FADE] - 1.0), 0.0, 1.0);
  for (int o = 0; o < O; o++) f[o] = total[o] = 0.0;
  if (inside <= 0.0) return;
  for (int k = 0; k < K; k++) {
    const double* in = z;
    int size = F;
    for (int l = 0; l < L; l++) {
      const int next = (int)t[L_SIZES + l];
      double* restrict out = l == L - 1 ? each[k] : h[l % 2];
      const double* restrict b = w + size * next;
      for (int j = 0; j < next; j++) out[j] = b[j];
      for (int i = 0; i < size; i++) {
        const double xi = in[i];
        const double* restrict row = w + i * next;
        for (int j = 0; j < next; j++) out[j] += xi * row[j];
      }
      if (l < L - 1) for (int j = 0; j < next; j++) out[j] = out[j] / (1.0 + fabs(out[j]));
      w = b + next;
      in = out;
      size = next;
    }
    for (int o = 0; o < O; o++) total[o] += each[k][o];
  }
  double spread = 0.0;
  for (int o = 0; o < O; o++) {
    total[o] /= K;
    for (int k = 0; k < K; k++) spread += (each[k][o] - total[o]) * (each[k][o] - total[o]);
  }
  const double trust = inside / (1.0 + spread / ((double)K * O) / (t[L_DOUBT] * t[L_DOUBT]));
  for (int o = 0; o < O; o++) f[o] = trust * clip(total[o], -1.0, 1.0) * unit[o];
}

static void body_force(const double* t, const mjModel* model, mjData* data) {
  const double* part = t + L_SIZES + (int)t[L_LAYERS];
  const int rows = (int)*part++;
  double x[MOST_FEATURES], f[MOST_FEATURES], *to = x;
  for (int i = 0; i < rows; i++, part += 3) {
    const int how = (int)part[0], at = (int)part[1];
    switch (how) {
      case R_QPOS: *to++ = data->qpos[at]; break;
      case R_SINE: *to++ = sin(data->qpos[at]); break;
      case R_COSINE: *to++ = cos(data->qpos[at]); break;
      case R_QVEL: *to++ = data->qvel[at]; break;
      case R_CTRL: *to++ = data->ctrl[at]; break;
      case R_GRAVITY: { const double down[3] = {0.0, 0.0, -1.0}; unrotate(data->qpos + at + 3, down, to); to += 3; break; }
      default: unrotate(data->qpos + at + 3, data->qvel + (int)part[2], to); to += 3;
    }
  }
  const int count = (int)*part++;
  ensemble(t, part + 2 * count, x, f);
  const double* from = f;
  for (int i = 0; i < count; i++, part += 2) {
    const int dof = (int)part[0], at = (int)part[1];
    if (at < 0) { data->qfrc_applied[dof] += *from++; continue; }
    const mjtNum* q = data->qpos + at + 3;
    const mjtNum back[4] = {q[0], -q[1], -q[2], -q[3]};
    double world[3];
    unrotate(back, from, world);
    for (int k = 0; k < 3; k++) data->qfrc_applied[dof + k] += world[k];
    for (int k = 3; k < 6; k++) data->qfrc_applied[dof + k] += from[k];
    from += 6;
  }
}

// `memory` holds error and speed of all m motors at each of the last `depth` steps; the newest is in slot `now`.
static void motor_force(const double* t, const mjtNum* memory, int depth, int now, int m, const mjtNum* vcol, mjData* data) {
  const double* part = t + L_SIZES + (int)t[L_LAYERS];
  const int count = (int)*part++;
  const double* motors = part;
  part += count;
  const int backs = (int)*part++;
  const double* back = part;
  double x[MOST_FEATURES], f[1];
  for (int i = 0; i < count; i++) {
    const int motor = (int)motors[i];
    for (int what = 0; what < 2; what++)
      for (int b = 0; b < backs; b++) {
        const int slot = ((now - (int)back[b]) % depth + depth) % depth;
        x[what * backs + b] = memory[(slot * 2 + what) * m + motor];
      }
    ensemble(t, back + backs, x, f);
    data->qfrc_applied[(int)vcol[motor]] += f[0];
  }
}
