package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func logger(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func config(t *testing.T) Config {
	r := prometheus.NewRegistry()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "test_value", Help: "Help."})
	g.Set(7)
	r.MustRegister(g)
	return Config{Listen: "127.0.0.1:0", Metrics: r, Health: newHealth(time.Now), Logger: logger(t)}
}

// start runs a server until the test ends, and returns its address.
func start(t *testing.T, c Config) string {
	t.Helper()
	address := make(chan net.Addr, 1)
	c.Listening = func(a net.Addr) { address <- a }
	s, err := NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + (<-address).String()
}

func get(t *testing.T, method, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestServer(t *testing.T) {
	c := config(t)
	h := c.Health
	plain := start(t, c)
	c.Pprof = true
	profiled := start(t, c)
	for _, test := range []struct {
		method, url string
		status      int
		body        string
	}{
		{"GET", plain + "/metrics", 200, "test_value 7"},
		{"GET", plain + "/healthz", 200, "ok\n"},
		{"GET", plain + "/readyz", 200, "ok\n"},
		{"HEAD", plain + "/readyz", 200, ""},
		{"POST", plain + "/metrics", 405, ""},
		{"GET", plain + "/", 404, ""},
		{"GET", plain + "/debug/pprof/", 404, ""},
		{"GET", profiled + "/debug/pprof/", 200, "goroutine"},
		{"GET", profiled + "/debug/pprof/heap", 200, ""},
		{"GET", profiled + "/metrics", 200, "test_value 7"},
	} {
		status, body := get(t, test.method, test.url)
		if status != test.status || !strings.Contains(body, test.body) {
			t.Errorf("%s %s: %d %.100q, want %d %q", test.method, test.url, status, body, test.status, test.body)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, plain+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "evil.example" // of a web site that points its name here
	if answer, err := http.DefaultClient.Do(request); err != nil || answer.StatusCode != 403 {
		t.Errorf("a foreign host: %v, %v", answer, err)
	} else {
		answer.Body.Close()
	}
	h.Drain()
	if status, body := get(t, "GET", plain+"/readyz"); status != 503 || !strings.Contains(body, "shutting down") {
		t.Errorf("draining: %d %q", status, body)
	}
	if status, _ := get(t, "GET", plain+"/healthz"); status != 200 {
		t.Errorf("draining: not alive")
	}
}

// TestAddressInUse: the error names the flag of the address.
func TestAddressInUse(t *testing.T) {
	c := config(t)
	c.Listen = strings.TrimPrefix(start(t, config(t)), "http://")
	s, err := NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.Listen+": ") || !strings.HasSuffix(err.Error(), "choose another port with --metrics-listen") {
		t.Errorf("%v", err)
	}
}

// TestPartialScrape: one failing collector does not hide the others.
func TestPartialScrape(t *testing.T) {
	c := config(t)
	r := c.Metrics.(*prometheus.Registry)
	r.MustRegister(prometheus.CollectorFunc(func(to chan<- prometheus.Metric) {
		to <- prometheus.NewInvalidMetric(prometheus.NewDesc("bad", "Help.", nil, nil), errors.New("broken"))
	}))
	if status, body := get(t, "GET", start(t, c)+"/metrics"); status != 200 || !strings.Contains(body, "test_value 7") {
		t.Errorf("%d %s", status, body)
	}
}

func TestAddresses(t *testing.T) {
	const remedy, profiles = "allow it with --metrics-unauthenticated", "profiles are served only on loopback"
	for _, test := range []struct {
		listen        string
		remote, pprof bool
		want          string // in the error; "": none
	}{
		{"127.0.0.1:0", false, true, ""},
		{"[::1]:0", false, true, ""},
		{"localhost:0", false, true, ""},
		{"0.0.0.0:0", false, false, remedy},
		{":9464", false, false, remedy},
		{"192.0.2.1:9464", false, false, remedy},
		{"0.0.0.0:0", true, false, ""},
		{"0.0.0.0:0", true, true, profiles},
		{"0.0.0.0:0", false, true, profiles},
		{"9464", true, false, "expected HOST:PORT"},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			_, err := NewServer(Config{Listen: test.listen, Remote: test.remote, Pprof: test.pprof})
			if (err == nil) != (test.want == "") || err != nil && (!errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestHugeHeader: the size of a client's header is limited.
func TestHugeHeader(t *testing.T) {
	url := start(t, config(t))
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/healthz", nil)
	request.Header.Set("X-Huge", strings.Repeat("x", 1<<20))
	answer, err := http.DefaultClient.Do(request)
	if err == nil {
		answer.Body.Close()
		if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a header of 1 MiB: %s", answer.Status)
		}
	}
}
