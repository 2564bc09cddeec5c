package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progressInterval is how often a progress bar is drawn.
const progressInterval = 100 * time.Millisecond

// isTerminal tells whether a person is looking at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// showProgress draws a bar on w until the returned function is called; poll tells
// how much of total is done and what to say beside the bar. Nothing is drawn when
// w is not a terminal.
func showProgress(w io.Writer, total int64, bytes bool, poll func() (done int64, note string)) (stop func()) {
	if !isTerminal(w) {
		return func() {}
	}
	bar := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionShowBytes(bytes),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(progressInterval/2),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(),
	)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			at, note := poll()
			bar.Describe(note)
			_ = bar.Set64(min(at, total))
			select {
			case <-quit:
				_ = bar.Clear()
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
