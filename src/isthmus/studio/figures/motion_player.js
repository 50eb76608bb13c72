// Draws motions of robots from faces and poses: see player.py. Parallel projection, faces from far to near.
(function () {
  "use strict";
  function axes(azimuth, elevation) {
    var ca = Math.cos(azimuth), sa = Math.sin(azimuth), ce = Math.cos(elevation), se = Math.sin(elevation);
    return [-sa, ca, 0, -se * ca, -se * sa, ce, ce * ca, ce * sa, se];
  }
  function make(tag, kind, parent) {
    var e = document.createElement(tag);
    if (kind) e.className = kind;
    if (parent) parent.append(e);
    return e;
  }

  // Poses of all bodies at a second: rotation, row by row, and place, 12 numbers each.
  function poses(d, m, t) {
    var k = 0, times = m.time, last = times.length - 1;
    while (k < last - 1 && times[k + 1] <= t) k++;
    var s = Math.min(1, Math.max(0, (t - times[k]) / (times[k + 1] - times[k])));
    var a = m.pose[k], b = m.pose[k + 1], out = [];
    for (var i = 0; i < a.length; i += 7) {
      var sign = a[i + 3] * b[i + 3] + a[i + 4] * b[i + 4] + a[i + 5] * b[i + 5] + a[i + 6] * b[i + 6] < 0 ? -1 : 1;
      var q = [3, 4, 5, 6].map(function (j) { return a[i + j] * (1 - s) + sign * b[i + j] * s; });
      var n = Math.hypot(q[0], q[1], q[2], q[3]) || 1, w = q[0] / n, x = q[1] / n, y = q[2] / n, z = q[3] / n;
      var p = [0, 1, 2].map(function (j) { return (a[i + j] * (1 - s) + b[i + j] * s) * d.unit; });
      out.push([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y), 2 * (x * y + w * z), 1 - 2 * (x * x + z * z),
        2 * (y * z - w * x), 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y), p[0], p[1], p[2]]);
    }
    var c = [0, 1, 2].map(function (j) { return (m.centre[k][j] * (1 - s) + m.centre[k + 1][j] * s) * d.unit; });
    return { bodies: out, centre: c };
  }

  // Corners of all solids in the world.
  function placed(d, scene, pose) {
    return scene.solids.map(function (s) {
      var R = pose.bodies[s.body], c = s.corners, out = new Float64Array(c.length);
      for (var i = 0; i < c.length; i += 3) {
        var x = c[i] * d.unit, y = c[i + 1] * d.unit, z = c[i + 2] * d.unit;
        out[i] = R[0] * x + R[1] * y + R[2] * z + R[9];
        out[i + 1] = R[3] * x + R[4] * y + R[5] * z + R[10];
        out[i + 2] = R[6] * x + R[7] * y + R[8] * z + R[11];
      }
      return out;
    });
  }

  // The same in a picture: right, up, towards the eye.
  function turned(corners, A, c) {
    var out = new Float64Array(corners.length);
    for (var i = 0; i < corners.length; i += 3) {
      var x = corners[i] - c[0], y = corners[i + 1] - c[1], z = corners[i + 2] - c[2];
      for (var j = 0; j < 3; j++) out[i + j] = A[3 * j] * x + A[3 * j + 1] * y + A[3 * j + 2] * z;
    }
    return out;
  }

  function normal(p, face) {
    var x = 0, y = 0, z = 0;
    for (var k = 0; k < face.length; k++) {
      var a = 3 * face[k], b = 3 * face[(k + 1) % face.length];
      x += p[a + 1] * p[b + 2] - p[a + 2] * p[b + 1];
      y += p[a + 2] * p[b] - p[a] * p[b + 2];
      z += p[a] * p[b + 1] - p[a + 1] * p[b];
    }
    var n = Math.hypot(x, y, z) || 1;
    return [x / n, y / n, z / n];
  }

  function outline(g, p, face, k) {
    for (var i = 0; i < face.length; i++) {
      var x = k * p[3 * face[i]], y = -k * p[3 * face[i] + 1];
      if (i) g.lineTo(x, y); else g.moveTo(x, y);
    }
    g.closePath();
  }

  function ground(g, d, height, A, c, k, ink) {
    var step = d.ground.cell, n = d.ground.cells, x0 = Math.round(c[0] / step), y0 = Math.round(c[1] / step);
    function point(i, j, first) {
      var p = turned([i * step, j * step, height], A, c);
      if (first) g.moveTo(k * p[0], -k * p[1]); else g.lineTo(k * p[0], -k * p[1]);
    }
    g.beginPath();
    for (var i = -n; i <= n; i++) {
      point(x0 + i, y0 - n, true); point(x0 + i, y0 + n);
      point(x0 - n, y0 + i, true); point(x0 + n, y0 + i);
    }
    g.strokeStyle = ink;
    g.lineWidth = 1;
    g.stroke();
  }

  function shade(g, scene, world, A, c, k) {
    g.beginPath();
    scene.solids.forEach(function (s, i) {
      if (!s.own) return;
      var flat = world[i].slice();
      for (var j = 2; j < flat.length; j += 3) flat[j] = scene.ground;
      var p = turned(flat, A, c);
      s.faces.forEach(function (f) { if (normal(world[i], f)[2] > 0) outline(g, p, f, k); });
    });
    g.fillStyle = "rgba(20,25,35,.16)";
    g.fill();
  }

  function ghost(g, d, scene, world, A, c, k, colour) {
    g.beginPath();
    scene.solids.forEach(function (s, i) {
      var p = turned(world[i], A, c);
      s.faces.forEach(function (f) { if (normal(p, f)[2] > 0) outline(g, p, f, k); });
    });
    g.globalAlpha = d.ghost;
    g.fillStyle = "rgb(" + colour + ")";
    g.fill();
    g.globalAlpha = 1;
  }

  function robot(g, d, scene, world, A, c, k, colour) {
    var seen = [];
    scene.solids.forEach(function (s, i) {
      var p = turned(world[i], A, c);
      s.faces.forEach(function (f) {
        var n = normal(p, f);
        if (n[2] <= 0) return;
        var depth = 0;
        for (var j = 0; j < f.length; j++) depth += p[3 * f[j] + 2];
        seen.push({ p: p, f: f, n: n, light: s.light, depth: depth / f.length });
      });
    });
    seen.sort(function (a, b) { return a.depth - b.depth; });
    g.lineWidth = 0.7;
    g.lineJoin = "round";
    seen.forEach(function (s) {
      var t = 0.5 + 0.5 * (s.n[0] * d.light[0] + s.n[1] * d.light[1] + s.n[2] * d.light[2]);
      var rgb = colour.map(function (v) {
        var own = v * (0.7 + 0.3 * s.light);
        return Math.round(own * d.dark + t * (own + d.bright * (255 - own) * t - own * d.dark));
      });
      g.beginPath();
      outline(g, s.p, s.f, k);
      g.fillStyle = g.strokeStyle = "rgb(" + rgb + ")";
      g.fill();
      g.stroke();
    });
  }

  // Where the base has been.
  function trail(g, d, m, base, t, A, c, k) {
    g.beginPath();
    for (var i = 0; i < m.time.length && m.time[i] <= t; i++) {
      var q = m.pose[i], p = turned([q[7 * base] * d.unit, q[7 * base + 1] * d.unit, q[7 * base + 2] * d.unit], A, c);
      if (i) g.lineTo(k * p[0], -k * p[1]); else g.moveTo(k * p[0], -k * p[1]);
    }
    g.globalAlpha = 0.6;
    g.lineWidth = 1.5;
    g.strokeStyle = "rgb(" + m.colour + ")";
    g.stroke();
    g.globalAlpha = 1;
  }

  // How far the middle of the furthest solid is from where another motion has it, m.
  function apart(a, b) {
    var most = 0;
    a.forEach(function (p, i) {
      var x = [0, 0, 0], n = p.length / 3;
      for (var j = 0; j < p.length; j++) x[j % 3] += (p[j] - b[i][j]) / n;
      most = Math.max(most, Math.hypot(x[0], x[1], x[2]));
    });
    return most;
  }

  function play(figure) {
    var d = JSON.parse(figure.querySelector("script").textContent), motions = d.motions;
    var start = motions[0].time[0], end = Math.max.apply(null, motions.map(function (m) { return m.time[m.time.length - 1]; }));
    var box = make("div", "screen");
    figure.prepend(box);
    var panels = make("div", "panels", box), n = motions.length;
    panels.style.setProperty("--n", n === 1 ? 1 : n === 2 || n === 4 ? 2 : 3);
    var shown = motions.map(function (m) {
      var panel = make("div", "panel", panels), label = make("div", "label", panel);
      var name = make("b", "", label), note = make("span", "quiet", label), canvas = make("canvas", "", panel);
      name.textContent = m.name;
      name.style.setProperty("--own", "rgb(" + m.colour + ")");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", m.name);
      return { canvas: canvas, note: note };
    });
    var bar = make("div", "bar", box), button = make("button", "", bar), range = make("input", "", bar), clock = make("output", "", bar);
    button.type = "button";
    range.type = "range";
    range.min = 0; range.max = 1000; range.value = 0;
    range.setAttribute("aria-label", "time");
    var speed = make("select", "", bar);
    speed.setAttribute("aria-label", "speed");
    [["1", "1×"], ["0.5", "½×"], ["0.25", "¼×"], ["0.1", "⅒×"]].forEach(function (o) { speed.add(new Option(o[1], o[0])); });
    speed.value = "0.5";
    var twin = motions.some(function (m, i) { return i && m.scene === motions[0].scene; }), behind = null;
    if (twin) {
      var choice = make("label", "", bar);
      behind = make("input", "", choice);
      behind.type = "checkbox";
      behind.checked = true;
      choice.append(" " + motions[0].name + " behind");
      behind.onchange = draw;
    }
    var azimuth = d.view.azimuth, elevation = d.view.elevation, t = start, playing = false, visible = true, due = 0, rest = 0;

    function draw() {
      var A = axes(azimuth, elevation), style = getComputedStyle(figure), ink = style.getPropertyValue("--rule") || "#ddd";
      var all = motions.map(function (m) {
        var pose = poses(d, m, t);
        return { centre: pose.centre, world: placed(d, d.scenes[m.scene], pose) };
      });
      motions.forEach(function (m, i) {
        var canvas = shown[i].canvas, g = canvas.getContext("2d"), ratio = window.devicePixelRatio || 1;
        var wide = canvas.clientWidth, high = canvas.clientHeight, scene = d.scenes[m.scene];
        if (!wide) return;
        if (canvas.width !== Math.round(wide * ratio)) { canvas.width = Math.round(wide * ratio); canvas.height = Math.round(high * ratio); }
        g.setTransform(ratio, 0, 0, ratio, 0, 0);
        g.clearRect(0, 0, wide, high);
        g.translate(wide / 2, high / 2);
        var k = high / 2 / d.view.half, c = all[i].centre, same = i && m.scene === motions[0].scene;
        if (scene.ground !== null) {
          ground(g, d, scene.ground, A, c, k, ink);
          shade(g, scene, all[i].world, A, c, k);
        }
        if (scene.base !== null) {
          if (same && behind.checked) trail(g, d, motions[0], scene.base, t, A, c, k);
          trail(g, d, m, scene.base, t, A, c, k);
        }
        if (same && behind.checked) ghost(g, d, scene, all[0].world, A, c, k, motions[0].colour);
        robot(g, d, scene, all[i].world, A, c, k, m.colour);
        shown[i].note.textContent = same ? apart(all[0].world, all[i].world).toFixed(2) + " m apart" : "\u00a0";
      });
      clock.textContent = (d.clock + t).toFixed(2) + " s";
      range.value = Math.round(1000 * (t - start) / (end - start));
    }
    function show() {
      button.textContent = playing ? "❚❚" : "▶";
      button.setAttribute("aria-label", playing ? "pause" : "play");
    }
    function tick(now) {
      if (!playing || !visible) return;
      var step = Math.min(0.1, Math.max(0, (now - due) / 1000));
      due = now;
      if (t < end) t = Math.min(end, t + step * +speed.value);
      else if ((rest += step) > 0.8) { t = start; rest = 0; }
      draw();
      requestAnimationFrame(tick);
    }
    function go(on) {
      playing = on;
      show();
      if (on) { if (t >= end) t = start; due = performance.now(); requestAnimationFrame(tick); }
    }
    button.onclick = function () { go(!playing); };
    range.oninput = function () { go(false); t = start + (end - start) * range.value / 1000; draw(); };
    shown.forEach(function (s) {
      s.canvas.addEventListener("pointerdown", function (e) { s.canvas.setPointerCapture(e.pointerId); s.at = [e.clientX, e.clientY]; });
      s.canvas.addEventListener("pointerup", function () { s.at = null; });
      s.canvas.addEventListener("pointercancel", function () { s.at = null; });
      s.canvas.addEventListener("pointermove", function (e) {
        if (!s.at) return;
        azimuth -= 0.01 * (e.clientX - s.at[0]);
        elevation = Math.min(1.5, Math.max(-0.2, elevation + 0.01 * (e.clientY - s.at[1])));
        s.at = [e.clientX, e.clientY];
        draw();
      });
      s.canvas.addEventListener("dblclick", function () { azimuth = d.view.azimuth; elevation = d.view.elevation; draw(); });
    });
    figure.classList.add("on");
    show();
    draw();
    new ResizeObserver(draw).observe(panels);
    matchMedia("(prefers-color-scheme:dark)").addEventListener("change", draw);
    new IntersectionObserver(function (seen) {
      var was = visible;
      visible = seen[0].isIntersecting;
      if (visible && !was && playing) go(true);
    }).observe(figure);
    if (!matchMedia("(prefers-reduced-motion:reduce)").matches) go(true);
  }
  document.querySelectorAll("figure.player").forEach(play);
})();
