package worker

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sojourn-run/sojourn/internal/process"
)

// port is the worker's HTTP server for health probes and metrics. Probes check the worker alone and never call the app,
// so that an app that is down does not make its workers appear dead.
type port struct {
	listener net.Listener
	server   *http.Server
	served   chan struct{}
}

// openPort listens on addr. The port needs no authentication, because it returns only states and numbers.
func (w *Worker) openPort(addr string) (*port, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, process.ListenError("worker-addr", addr, err)
	}
	p := &port{listener: l, served: make(chan struct{}), server: &http.Server{
		Handler: w.Probes(), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 30 * time.Second,
	}}
	go func() {
		defer close(p.served)
		_ = p.server.Serve(l) // Serve returns when the server is closed
	}()
	w.log.Info().Str("addr", l.Addr().String()).Msg("health probe listener started")
	return p, nil
}

func (p *port) close() {
	_ = p.server.Close()
	<-p.served
}

// Probes returns the handler of three routes: /healthz (should the process keep running?), /readyz (does the worker
// receive and run tasks?) and /metrics.
func (w *Worker) Probes() http.Handler {
	mux := http.NewServeMux()
	probe := func(path string, checks func() map[string]string) {
		mux.HandleFunc("GET "+path, func(rw http.ResponseWriter, _ *http.Request) {
			code, status := http.StatusOK, "ok"
			found := checks()
			for _, c := range found {
				if c != "ok" && c != unreadable {
					code, status = http.StatusServiceUnavailable, "unavailable"
				}
			}
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(code)
			_ = json.NewEncoder(rw).Encode(map[string]any{"status": status, "checks": found}) // the client may have disconnected
		})
	}
	probe("/healthz", func() map[string]string { return map[string]string{"loops": text(w.Alive())} })
	probe("/readyz", w.checks)
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), w.Collector(),
	)
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	return mux
}

// unreadable is the result of the release check if the release cannot be compared: the worker receives tasks, but the
// releases of app and worker may differ.
const unreadable = "unreadable"

// checks returns the conditions under which the worker receives and runs tasks, each with "ok" or an error.
func (w *Worker) checks() map[string]string {
	found := map[string]string{
		"settings": text(w.Ready()), "release": "ok", "executors": "ok", "loops": text(w.Alive()), "drain": "ok",
	}
	if w.link.Unproven() {
		found["release"] = unreadable
	}
	if why := w.link.Gated(); why != "" {
		found["release"] = why
	}
	if w.pool != nil {
		found["executors"] = text(w.pool.Ready())
	}
	switch {
	case w.link.Leaving():
		found["drain"] = "the worker drains"
	case w.link.Paused():
		found["drain"] = "an operator gives this worker nothing more"
	}
	return found
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// Collector returns the worker's metrics, for a program that serves /metrics itself.
func (w *Worker) Collector() prometheus.Collector { return workerCollector{w} }

// workerCollector exports the worker's metrics. Each scrape reads one snapshot.
type workerCollector struct{ worker *Worker }

var (
	upDesc = prometheus.NewDesc(
		"sojourn_worker_connected", "1 while the worker is connected and registered.", nil, nil,
	)
	gatedDesc = prometheus.NewDesc(
		"sojourn_worker_gated", "1 while the app is of another release and gives no work.", nil, nil,
	)
	breaksDesc = prometheus.NewDesc("sojourn_worker_disconnects_total", "Connections to apps that ended.", nil, nil)
	slotsDesc  = prometheus.NewDesc(
		"sojourn_worker_slots", "Tasks that may run at once, by kind.", []string{"kind"}, nil,
	)
	busyDesc     = prometheus.NewDesc("sojourn_worker_busy_slots", "Tasks that run, by kind.", []string{"kind"}, nil)
	sessionsDesc = prometheus.NewDesc("sojourn_worker_sessions", "Sessions held.", nil, nil)
	execDesc     = prometheus.NewDesc(
		"sojourn_worker_executors", "Executors that run, by whether they are busy.", []string{"busy"}, nil,
	)
	memoryDesc  = prometheus.NewDesc("sojourn_worker_executor_bytes", "What all executors have in memory.", nil, nil)
	runningDesc = prometheus.NewDesc(
		"sojourn_executor_running", "Executors by runtime and state: busy, session (in one, without a call) or idle.",
		[]string{"runtime", "state"}, nil,
	)
	bytesDesc = prometheus.NewDesc(
		"sojourn_executor_memory_bytes", "What executors have in memory.", []string{"runtime"}, nil,
	)
	oldestDesc = prometheus.NewDesc(
		"sojourn_executor_oldest_seconds", "Age of the oldest executor.", []string{"runtime"}, nil,
	)
	startsDesc = prometheus.NewDesc("sojourn_executor_starts_total", "Executors started.", []string{"runtime"}, nil)
	callsDesc  = prometheus.NewDesc("sojourn_executor_calls_total", "Calls that ended.", []string{"runtime"}, nil)
	endsDesc   = prometheus.NewDesc(
		"sojourn_executor_ends_total", "Executors that ended, by cause.", []string{"runtime", "cause"}, nil,
	)
)

// Describe implements prometheus.Collector.
func (c workerCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		upDesc, gatedDesc, breaksDesc, slotsDesc, busyDesc, sessionsDesc, execDesc, memoryDesc, runningDesc,
		bytesDesc, oldestDesc, startsDesc, callsDesc, endsDesc,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c workerCollector) Collect(out chan<- prometheus.Metric) {
	w := c.worker
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	truth := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	gauge(upDesc, truth(w.link.Connected()))
	gauge(gatedDesc, truth(w.link.Gated() != ""))
	out <- prometheus.MustNewConstMetric(breaksDesc, prometheus.CounterValue, float64(w.link.Generation()))
	workflows, activities := w.runner.Busy()
	gauge(slotsDesc, float64(w.opt.Workflows), "workflow")
	gauge(slotsDesc, float64(w.concurrency()), "activity")
	gauge(busyDesc, float64(workflows), "workflow")
	gauge(busyDesc, float64(activities), "activity")
	gauge(sessionsDesc, float64(len(w.sessions.List())))
	if w.pool == nil {
		return
	}
	var busy, all, bytes float64
	running, memory, oldest := map[[2]string]float64{}, map[string]float64{}, map[string]float64{}
	for _, e := range w.pool.Snapshot() {
		all++
		busy += truth(e.Busy)
		bytes += float64(e.MemoryUsageBytes)
		state := "idle"
		switch {
		case e.Busy:
			state = "busy"
		case e.SessionID != "":
			state = "session"
		}
		running[[2]string{e.Runtime, state}]++
		memory[e.Runtime] += float64(e.MemoryUsageBytes)
		oldest[e.Runtime] = max(oldest[e.Runtime], time.Since(e.Since).Seconds())
	}
	for r := range w.pool.Report().Runtimes {
		for _, state := range []string{"busy", "session", "idle"} {
			gauge(runningDesc, running[[2]string{r, state}], r, state)
		}
		gauge(bytesDesc, memory[r], r)
		gauge(oldestDesc, oldest[r], r)
	}
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	stats := w.pool.Stats()
	for r, n := range stats.Starts {
		counter(startsDesc, n, r)
		counter(callsDesc, stats.Calls[r], r)
	}
	for r, ends := range stats.Ends {
		for cause, n := range ends {
			counter(endsDesc, n, r, cause)
		}
	}
	gauge(execDesc, busy, "true")
	gauge(execDesc, all-busy, "false")
	gauge(memoryDesc, bytes)
}
