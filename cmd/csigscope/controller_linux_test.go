package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture/livetest"
)

// decision is a line of the controller.
type decision struct {
	Time, Window time.Time
	Path         string
	Weight       int
	Why          string
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *decision) UnmarshalJSON(b []byte) error {
	var line struct {
		Time   time.Time `json:"time"`
		Window time.Time `json:"window_end"`
		Path   string    `json:"path"`
		Weight int       `json:"weight"`
		Why    string    `json:"why"`
	}
	err := json.Unmarshal(b, &line)
	*d = decision{line.Time, line.Window, line.Path, line.Weight, line.Why}
	return err
}

// TestController: a controller that uses only the API lowers the weight of a path in the first
// window that shows its limit or failure, and raises it again: two changes for each event, none
// for an incast that all paths share, and none from data from before a tap died.
func TestController(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED with -short: 75 s of traffic at its own pace")
	}
	env := engineEnv(t)
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	livetest.MakeLink(t)
	dir := t.TempDir()
	dsn := newStore(t, env, filepath.Join(dir, "store"))
	const scenario = "../../aggregate/query/client/example/scenario.yaml"
	mustRun(t, env, "emit", "--scenario-file", scenario, "--set", "duration=1s", "--out", filepath.Join(dir, "fabric"))
	// One tap has the frames of all taps in the scenario.
	fabricFile := filepath.Join(dir, "fabric", "fabric.yaml")
	text, err := os.ReadFile(fabricFile)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^taps:\n(  .*\n)+`).ReplaceAll(text, nil)
	if err := os.WriteFile(fabricFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c := runUntil(t, env, "collecting", "collect", "--interface", livetest.TapEnd, "--store", dsn, "--api-listen", "127.0.0.1:9465",
		"--fabric", fabricFile)
	decisions := runController(t, dir)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	follow := exec.Command(path, "query", "changes", "--server", "http://127.0.0.1:9465", "-o", "ndjson")
	follow.Env = env
	changes := startLines(t, follow)
	began := time.Now()
	sent := make(chan result, 1)
	go func() {
		sent <- runBinary(t, env, "emit", "--scenario-file", scenario, "--interface", livetest.SendEnd)
	}()
	// The tap's link is down when the last event begins.
	time.Sleep(time.Until(began.Add(56 * time.Second)))
	livetest.IP(t, "link", "set", livetest.TapEnd, "down")
	down := time.Now()
	time.Sleep(time.Until(began.Add(66 * time.Second)))
	livetest.IP(t, "link", "set", livetest.TapEnd, "up")
	up := time.Now()
	if r := <-sent; r.code != 0 {
		t.Fatalf("emit: exit code %d: %s", r.code, r.stderr)
	}
	got := decisions()
	told, _ := changes() // interrupted
	checkChanges(t, told)
	c.end(syscall.SIGTERM)
	checkDecisions(t, got, answeredWindows(t, mustRun(t, env, "query", "windows", "--store", dsn, "--src", "rack1", "--dst", "rack2", "-o", "json")), down, up)
}

// runController builds and starts the controller; the returned function ends it and returns its
// decisions.
func runController(t *testing.T, dir string) (decisions func() []decision) {
	t.Helper()
	program := filepath.Join(dir, "controller")
	if out, err := exec.Command("go", "build", "-o", program, "../../aggregate/query/client/example").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	end := startLines(t, exec.Command(program, "--server", "http://127.0.0.1:9465", "--src", "rack1", "--dst", "rack2"))
	return func() (list []decision) {
		out, err := end()
		if err != nil {
			t.Errorf("the controller ended with %v", err)
		}
		for line := range strings.Lines(out) {
			list = append(list, decodeJSON[decision](t, line))
		}
		return list
	}
}

// startLines starts a command; the returned function ends it and returns its output.
func startLines(t *testing.T, cmd *exec.Cmd) (end func() (string, error)) {
	t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(bufio.NewReader(stdout))
		lines <- all
	}()
	return func() (string, error) {
		_ = cmd.Process.Signal(syscall.SIGINT)
		return string(<-lines), cmd.Wait()
	}
}

// checkChanges: the limits of the pair begin and end once each, in turn, and so does the
// silence of the tap.
func checkChanges(t *testing.T, text string) {
	t.Helper()
	type change struct {
		Kind, Src, Dst, State, Location, Producer string
	}
	var pair, tap []string
	for line := range strings.Lines(text) {
		e := decodeJSON[struct {
			Event string
			Data  struct {
				End     time.Time `json:"window_end"`
				Changes []change
			}
		}](t, line)
		for _, c := range e.Data.Changes {
			t.Logf("%s: %s %+v", e.Data.End.Format(time.TimeOnly), e.Event, c)
			switch {
			case c.Producer != "":
				tap = append(tap, c.Kind+" "+c.Producer)
			case c.Src == "rack1" && c.Dst == "rack2" && (c.Kind == "onset" || c.Kind == "cleared"):
				pair = append(pair, c.Kind)
			}
		}
	}
	for i, kind := range pair {
		if want := [...]string{"onset", "cleared"}[i%2]; len(pair) < 4 || kind != want {
			t.Fatalf("changes of the pair %q, want each event to begin and end once", pair)
		}
	}
	if want := []string{"tap_lost " + livetest.TapEnd, "tap_back " + livetest.TapEnd}; !slices.Equal(tap[max(len(tap)-2, 0):], want) {
		t.Errorf("changes of taps %q, want %q in the end", tap, want)
	}
}

// checkDecisions compares decisions with the stored windows.
func checkDecisions(t *testing.T, got []decision, stored []answeredCell, down, up time.Time) {
	t.Helper()
	for i, d := range got {
		t.Logf("%s: window until %s: %s has %d: %s", d.Time.Format(time.TimeOnly), d.Window.Format(time.TimeOnly), d.Path, d.Weight, d.Why)
		if age := d.Time.Sub(d.Window); age > 3*time.Second || d.Time.After(down.Add(4*time.Second)) && d.Time.Before(up) {
			t.Errorf("decision %d is on a window of %s ago", i, age)
		}
	}
	wanted := []struct {
		through string // a link of the path
		low     bool
	}{{"spine1", true}, {"spine1", false}, {"spine2", true}, {"spine2", false}, {"spine1", true}}
	if len(got) != len(wanted) {
		t.Fatalf("%d decisions, want %d", len(got), len(wanted))
	}
	for i, w := range wanted {
		if d := got[i]; !strings.Contains(d.Path, w.through) || (d.Weight < 10) != w.low {
			t.Errorf("decision %d: %+v, want %+v", i, d, w)
		}
	}
	// The first window with the limit triggers the decision, or the next one if it is late or
	// has too few observations.
	onset := slices.IndexFunc(stored, func(c answeredCell) bool { return c.Mode.Location == "spine1:down2" })
	if onset < 0 {
		t.Fatal("no stored window has the limit")
	}
	begin, err := time.Parse(time.RFC3339, stored[onset].From)
	if err != nil {
		t.Fatal(err)
	}
	if late := got[0].Window.Sub(begin); late > 2*time.Second {
		t.Errorf("decided on a window that ends %s after the onset", late)
	}
}
