package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/capture/livetest"
	"github.com/csigscope/csigscope/dashboards/grafana/grafanatest"
)

// TestPipelineScreenshots draws the dashboard of csigscope itself as TestDashboardScreenshots
// does the others: over a collector and an exporter with traffic for a minute and a half,
// scraped by Prometheus every second. The exporter is gone at the end.
func TestPipelineScreenshots(t *testing.T) {
	folder := os.Getenv(dashboardPicturesEnv)
	if folder == "" {
		t.Skip("takes a picture of a dashboard: make screenshots")
	}
	env := engineEnv(t)
	if !inNamespace(t) {
		return
	}
	const running, alone, scraped = 60 * time.Second, 30 * time.Second, time.Second
	started := time.Now().Truncate(time.Second)
	p := startPipeline(t, env)
	time.Sleep(running)
	p.host.end(syscall.SIGTERM)
	time.Sleep(alone)
	v := &grafanatest.Viewer{
		From: started.Add(5 * time.Second), To: time.Now().Truncate(scraped), Interval: scraped,
		Choices: map[string]grafanatest.Choice{"prometheus": {Text: "Prometheus", Value: "csigscope-prometheus"}, "job": {Text: "All", Value: "$__all"}, "instance": {Text: "All", Value: "$__all"}},
	}
	board := writtenBoards(t)["pipeline"]
	asked := askPrometheus(t, v, p.prometheus, board)
	photograph(t, grafanatest.NewStage(t), v, board, asked, filepath.Join(folder, "pipeline.png"))
}

// pipeline holds the processes of the picture.
type pipeline struct {
	host       *collecting
	prometheus string // URL
}

// startPipeline starts a collector with an exporter, both with traffic, a client that queries
// the collector, and a Prometheus with the shipped rules.
func startPipeline(t *testing.T, env []string) pipeline {
	t.Helper()
	livetest.MakeLink(t)
	const hostSend, hostTap = "hsend", "htap"
	livetest.MakeLinkOf(t, hostSend, hostTap)
	dir := t.TempDir()
	ingest, api, ops, hostOps, prometheus := freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t)
	config := writeFile(t, filepath.Join(dir, "collect.yaml"), fmt.Sprintf("collect:\n  taps:\n  - interface: %s\n  ingest: {listen: %q, anonymous: host1}\n", livetest.TapEnd, ingest))
	runUntil(t, env, "collecting", "collect", "--config", config, "--store", newStore(t, env, filepath.Join(dir, "store")), "--metrics-listen", ops, "--api-listen", api)
	host := runUntil(t, env, "exporting", "export", "--interface", hostTap, "--collector", "http://"+ingest, "--spool", filepath.Join(dir, "spool"), "--metrics-listen", hostOps)
	frames := taggedFrames(t)
	for _, link := range []string{livetest.SendEnd, hostSend} {
		stop := send(t, link, frames)
		t.Cleanup(func() { stop() })
	}
	go func() {
		for t.Context().Err() == nil {
			for _, path := range []string{"cells", "locations", "matrix"} {
				if response, err := http.Get("http://" + api + "/api/v1/" + path); err == nil {
					_ = response.Body.Close()
				}
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	rules, err := filepath.Abs("../../dashboards/metrics/alerts")
	if err != nil {
		t.Fatal(err)
	}
	scrape := writeFile(t, filepath.Join(dir, "prometheus.yaml"), fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s/*.rules.yaml]
scrape_configs:
- job_name: csigscope
  static_configs:
  - {targets: [%q], labels: {instance: collector}}
  - {targets: [%q], labels: {instance: host1}}
`, rules, ops, hostOps))
	server := exec.Command("prometheus", "--config.file="+scrape, "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+prometheus)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	return pipeline{host, "http://" + prometheus}
}

// askPrometheus runs the queries of the panels, and checks that the required data exist.
func askPrometheus(t *testing.T, v *grafanatest.Viewer, server string, board json.RawMessage) (asked []grafanatest.Asked) {
	t.Helper()
	var silent []string
	for _, panel := range decodeJSON[struct{ Panels []json.RawMessage }](t, string(board)).Panels {
		p := decodeJSON[struct {
			Title   string
			Targets []grafanatest.Query
		}](t, string(panel))
		a := grafanatest.Asked{Panel: panel}
		for _, q := range p.Targets {
			frames, err := v.AskPrometheus(server, q)
			if err != nil {
				t.Fatal(err)
			}
			a.Frames = append(a.Frames, frames...)
		}
		if len(a.Frames) == 0 {
			silent = append(silent, p.Title)
		}
		asked = append(asked, a)
	}
	quiet := []string{"Observations dropped, by reason", "Refused of exporters"}
	if slices.ContainsFunc(silent, func(title string) bool { return !slices.Contains(quiet, title) }) {
		t.Errorf("nothing is there for %s", strings.Join(silent, "; "))
	}
	return asked
}
