package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csigscope/csigscope/dashboards/page/pagetest"
)

// serveBinary runs a command that serves the page until the test ends, and returns the page's
// address. The command must end cleanly on an interrupt.
func serveBinary(t *testing.T, env []string, args ...string) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		kill := time.AfterFunc(awaited, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("after an interrupt: %v\n%s", err, stderr.String())
		}
	})
	address := regexp.MustCompile(`http://\S+/`)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if url := address.FindString(lines.Text()); url != "" {
			return url
		}
	}
	t.Fatalf("csigscope %s printed no address: %s", strings.Join(args, " "), stderr.String())
	return ""
}

// queriedCell is a cell without its numbers.
type queriedCell struct{ Src, Dst, State, Mode string }

func queriedCells(t *testing.T, text string) (list []queriedCell) {
	t.Helper()
	for _, c := range answeredCells(t, text) {
		list = append(list, queriedCell{c.Src, c.Dst, c.State, c.Mode.Location})
	}
	return list
}

// TestDemoPage runs the demo as a new user does and checks its page: every cell is drawn in the
// color of its data, and the colors match the store's answer.
func TestDemoPage(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	dir := t.TempDir()
	url := serveBinary(t, env, "demo", "--dir", dir, "--listen", "127.0.0.1:0")
	v := pagetest.Visit(t, url, "light")
	const racks = 16
	for _, window := range []int{-1, 1, 11} {
		v.SetWindow(window)
		v.CheckCells(v.Screenshot("demo"), racks)
	}
	v.SetWindow(-1)
	if links := pagetest.Evaluate[[]int](v, "csigscope.links()"); links[0] == 0 || links[1] != 2*4*racks {
		t.Errorf("the map has %d ports, %d of them with another end, want both ends of 4 links of each rack", links[0], links[1])
	}
	signal := pagetest.Evaluate[string](v, "csigscope.current().signal")
	colors := v.Colors("right", racks)
	cells := queriedCells(t, mustRun(t, env, "query", "cells", "-o", "json",
		"--signal", signal, "--store", "embedded:"+onlyMatch(t, filepath.Join(dir, "demo-*", "store"))))
	checkColors(t, cells, colors, racks)
	// All of the demo's windows are also in memory, with the same data.
	live := queriedCells(t, mustRun(t, env, "query", "cells", "-o", "json",
		"--signal", signal, "--server", url, "--windows", "60"))
	if !slices.Equal(live, cells) {
		t.Errorf("%d cells in memory, %d in the store, and they differ", len(live), len(cells))
	}
}

// TestDemoStates: the thresholds of a configuration decide in memory and in the store alike.
func TestDemoStates(t *testing.T) {
	t.Parallel()
	env, dir := engineEnv(t), t.TempDir()
	file := filepath.Join(dir, "csigscope.yaml")
	if err := os.WriteFile(file, []byte("states: {onset: 0.9, clear: 0.8}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := serveBinary(t, env, "demo", "--config", file, "--set", "duration=6s", "--dir", dir, "--listen", "127.0.0.1:0")
	congested := func(flags ...string) string {
		text := mustRun(t, env, append([]string{"query", "verdict", "-o", "json", "--server", url}, flags...)...)
		return regexp.MustCompile(`"congested_cells": *\d+`).FindString(text)
	}
	live, stored := congested("--windows", "6"), congested("--from", "2026-01-05T00:00:00Z", "--to", "2026-01-05T00:00:06Z")
	if live != stored || live == "" {
		t.Errorf("in memory %q, in the store %q", live, stored)
	}
}

// TestDemoNow: the data of demo --now end when the command begins.
func TestDemoNow(t *testing.T) {
	t.Parallel()
	env, dir, began := engineEnv(t), t.TempDir(), time.Now()
	serveBinary(t, env, "demo", "--now", "--set", "duration=1s", "--dir", dir, "--listen", "127.0.0.1:0")
	var extent []struct{ First, Last time.Time }
	text := mustRun(t, env, "query", "extent", "-o", "json", "--store", "embedded:"+onlyMatch(t, filepath.Join(dir, "demo-*", "store")))
	if err := json.Unmarshal([]byte(text), &extent); err != nil || len(extent) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	if first := extent[0].First; first.Before(began.Add(-3*time.Second)) || first.After(time.Now()) {
		t.Errorf("data from %s on, of a demo of 1 s that was run at %s", first, began)
	}
}

func onlyMatch(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: found %q, %v", pattern, found, err)
	}
	return found[0]
}

// checkColors compares the mode matrix with the store's answer: cells without data have no
// color, clear cells share one, and congested cells have others.
func checkColors(t *testing.T, cells []queriedCell, colors []*string, racks int) {
	t.Helper()
	var clear string
	drawn, congested := 0, 0
	for _, c := range cells {
		color := colors[rackNumber(t, c.Src)*racks+rackNumber(t, c.Dst)]
		if color == nil {
			t.Errorf("%s to %s has data and is not drawn", c.Src, c.Dst)
			continue
		}
		drawn++
		switch {
		case c.State == "clear" && clear == "":
			clear = *color
		case c.State == "clear" && *color != clear:
			t.Errorf("%s to %s is clear and drawn %s, others %s", c.Src, c.Dst, *color, clear)
		case c.Mode != "": // congested, or briefly loaded
			congested++
			if *color == clear {
				t.Errorf("%s to %s is loaded at %s and drawn as clear", c.Src, c.Dst, c.Mode)
			}
		}
	}
	for _, c := range colors {
		if c != nil {
			drawn--
		}
	}
	if drawn != 0 || congested == 0 || clear == "" {
		t.Errorf("%d cells are drawn without data; %d are loaded, clear ones are %q", -drawn, congested, clear)
	}
}

// rackNumber returns the position of rackN on the axes.
func rackNumber(t *testing.T, name string) int {
	t.Helper()
	n := 0
	for _, digit := range strings.TrimPrefix(name, "rack") {
		n = n*10 + int(digit-'0')
	}
	if n < 1 {
		t.Fatalf("group %q is no rack", name)
	}
	return n - 1
}
