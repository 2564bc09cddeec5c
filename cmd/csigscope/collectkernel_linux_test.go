package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/csigscope/csigscope/capture/livetest"
)

// TestCollectInKernel counts in the kernel, in a process that has given up its files, across a reload: every packet is stored
// once. What the kernel cannot count is refused, or goes to a ring.
func TestCollectInKernel(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	if _, err := binary(); err != nil {
		t.Fatal(err)
	}
	migratedStore(t, env)
	if !livetest.InNamespaceOfRoot(t) {
		return
	}
	livetest.MakeLink(t)
	dir := t.TempDir()
	dsn := newStore(t, env, filepath.Join(dir, "store"))
	file := filepath.Join(dir, "collect.yaml")
	config := func(text string) { writeFile(t, file, text) }
	checked := mustRun(t, env, "export", "--check", "--interface", livetest.TapEnd)
	if strings.Contains(checked, "missing") {
		t.Errorf("this host cannot count in the kernel:\n%s", checked)
	}
	collect := func() *collecting {
		return runUntil(t, env, "collecting", "collect", "--config", file, "--interface", livetest.TapEnd, "--store", dsn)
	}

	config("collect: {capture: ebpf}\n")
	c := collect()
	stop := traffic(t, 2000)
	c.waitRounds(filepath.Join(dir, "store"), 2)
	config("collect: {capture: ebpf}\nwindows: {locate_untouched: true}\n")
	if err := c.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	c.waitLog("msg=reloaded", 1)
	c.waitRounds(filepath.Join(dir, "store"), 2)
	sent := len(stop())
	c.end(syscall.SIGTERM)
	if got := stored(t, env, dsn); got != uint64(sent) {
		t.Errorf("%d packets sent, %d observations stored:\n%s", sent, got, c.log())
	}
	if strings.Contains(c.log(), "a ring takes packets") {
		t.Errorf("a ring took packets:\n%s", c.log())
	}

	config("collect: {capture: ebpf}\ndecode: {inner_tags: true}\n")
	errs := runBinary(t, env, "collect", "--config", file, "--interface", livetest.TapEnd, "--store", dsn).stderr
	if !strings.Contains(errs, "decode: inner_tags: counting in the kernel does not support it") {
		t.Errorf("inner tags are not refused: %s", errs)
	}
	config("collect: {capture: auto}\ndecode: {inner_tags: true}\n")
	c = collect()
	stop = traffic(t, 500)
	c.waitRounds(filepath.Join(dir, "store"), 2)
	sent += len(stop())
	c.end(syscall.SIGTERM)
	if got := stored(t, env, dsn); got != uint64(sent) || !strings.Contains(c.log(), "a ring takes packets") {
		t.Errorf("%d packets sent, %d observations stored:\n%s", sent, got, c.log())
	}
}
