package replay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/replay"
)

// A folder with rotating captures is followed from file to file. Unreadable files are reported at
// once and at the end.
func TestListFollowsFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		capturedAt(t, filepath.Join(dir, "first"), 1, 2)
		var out, copied, log bytes.Buffer
		cfg := listConfig(t, &out)
		cfg.Follow, cfg.Annotate, cfg.Logger = true, &copied, slog.New(slog.NewTextHandler(&log, nil))
		l, err := replay.NewLister(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx, []string{dir}) }()
		see := func(want ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if diff := cmp.Diff(want, lines(t, out.Bytes())); diff != "" {
				t.Error(diff)
			}
			out.Reset()
		}
		see("first/1@1", "first/2@2")
		capturedAt(t, filepath.Join(dir, "second"), 3)
		see("second/1@3")
		truncate(t, filepath.Join(dir, "second"), filepath.Join(dir, "second"), 0.9)
		see()
		if !strings.Contains(log.String(), "shrunk") {
			t.Errorf("the log does not say what was missed: %s", &log)
		}
		capturedAt(t, filepath.Join(dir, "third"), 4)
		see("third/1@4")
		cancel()
		if err := <-done; errors.Is(err, context.Canceled) || err == nil || !strings.Contains(err.Error(), ": 1 capture not read in full") {
			t.Errorf("error %v", err)
		}
		r, err := capture.NewReader(&copied, "copy", capture.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var batch capture.Batch
		if err := r.ReadBatch(&batch); err != nil || batch.N != 4 || len(r.Interfaces()) != 1 {
			t.Errorf("copy: %d packets of %d interfaces, %v", batch.N, len(r.Interfaces()), err)
		}
	})
}

func TestListFollowRefuses(t *testing.T) {
	path := capturedAt(t, filepath.Join(t.TempDir(), "f"), 1)
	missing := filepath.Join(t.TempDir(), "none")
	for name, paths := range map[string][]string{"two": {path, path}, "none": nil, "missing": {missing}} {
		cfg := listConfig(t, new(bytes.Buffer))
		cfg.Follow = true
		l, err := replay.NewLister(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Run(t.Context(), paths); err == nil || errors.Is(err, os.ErrNotExist) != (name == "missing") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// A pipe is read to its end, with or without Follow.
func TestListFollowsPipe(t *testing.T) {
	path := capturedAt(t, filepath.Join(t.TempDir(), "f"), 1, 2)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		defer w.Close()
		f, err := os.Open(path)
		if err == nil {
			defer f.Close()
			_, err = io.Copy(w, f)
		}
		if err != nil {
			t.Error(err)
		}
	}()
	var out bytes.Buffer
	cfg := listConfig(t, &out)
	cfg.Follow = true
	l, err := replay.NewLister(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stdin := os.Stdin
	os.Stdin = r
	defer func() { os.Stdin = stdin }()
	if err := l.Run(t.Context(), []string{"-"}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"/1@1", "/2@2"}, lines(t, out.Bytes())); diff != "" {
		t.Error(diff)
	}
}
