package main

import (
	"encoding/json"
	"image/png"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csigscope/csigscope/dashboards/grafana/grafanatest"
	"github.com/csigscope/csigscope/dashboards/page/pagetest"
)

// dashboardPicturesEnv names the folder for pictures of dashboards.
const dashboardPicturesEnv = "CSIGSCOPE_TEST_GRAFANA_SCREENSHOTS"

// TestDashboardScreenshots draws the dashboards over the demo, outside of Grafana with
// Grafana's own libraries.
func TestDashboardScreenshots(t *testing.T) {
	folder := os.Getenv(dashboardPicturesEnv)
	if folder == "" {
		t.Skip("takes the pictures of the dashboards: make screenshots")
	}
	env := engineEnv(t)
	store := "--store=embedded:" + filepath.Join(t.TempDir(), "store")
	mustRun(t, env, "replay", "--scenario", "demo", "--set", "duration=40s", store)
	address := freeAddress(t)
	serveBinary(t, env, "query", "serve", store, "--listen", "127.0.0.1:0", "--clickhouse-listen", address)
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	v := grafanatest.Viewer{ // the range ends in a step of the job
		URL: "http://" + address + "/?database=csigscope", From: start, To: start.Add(38 * time.Second), Interval: time.Second,
		Choices: map[string]grafanatest.Choice{
			"signal": {Text: "available bandwidth of capacity", Value: "1"}, "level": {Text: "port", Value: "0"}, "resolution": {Text: "1s", Value: "1000000000"},
			"datasource": {Text: "csigscope", Value: "csigscope-clickhouse"}, "src": {Value: "rack5"}, "dst": {Value: "rack6"}, "group": {Value: "rack5"}, "rows": {Text: "1s", Value: "1s"}, "location": {}, "onset": {Value: "0.05"}, "clear": {Value: "0.02"},
		},
	}
	stage, boards := grafanatest.NewStage(t), writtenBoards(t)
	for _, name := range []string{"fabric", "cells", "job"} {
		_, asked := askStore(t, &v, boards[name])
		photograph(t, stage, &v, boards[name], asked, filepath.Join(folder, name+".png"))
	}
}

// photograph draws a dashboard in full height and saves the picture.
func photograph(t *testing.T, stage *grafanatest.Stage, v *grafanatest.Viewer, board json.RawMessage, asked []grafanatest.Asked, path string) {
	t.Helper()
	server := httptest.NewServer(stage.Page(t, v, board, asked))
	defer server.Close()
	visit := pagetest.Enter(t, server.URL+"/", "dark", "404 (Not Found)") // Grafana's fonts
	visit.Wait("window.scene")
	visit.Resize(pagetest.Evaluate[int64](visit, "scene.width"), pagetest.Evaluate[int64](visit, "scene.height"))
	visit.Wait("innerHeight === scene.height && !Array.from(document.querySelectorAll('.rdg')).some((table) => !table.querySelector('[role=gridcell]'))")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(file, visit.Screenshot("")); err != nil {
		t.Fatal(err)
	}
}
