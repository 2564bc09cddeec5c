package pagetest

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// browser is the Chromium that all visits of a test binary share, since starting one takes longer
// than most visits. Main stops it.
var browser struct {
	once   sync.Once
	shared bool // started by Main
	ctx    context.Context
	cancel context.CancelFunc
}

// Main runs a package's tests with one browser for all visits and returns the exit code. Without
// Main each visit starts its own browser.
func Main(m *testing.M) int {
	browser.shared = true
	defer func() {
		if browser.cancel != nil {
			browser.cancel()
		}
	}()
	return m.Run()
}

// tab returns a new tab that is closed when the test ends. Without Chromium the test is skipped,
// except in CI, where a skipped test would go unnoticed. With -short, as in the race detector's
// runs, it is skipped too: package query/api covers the races of the page's requests.
func tab(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: what a browser draws has nothing for the race detector")
	}
	path := find()
	if path == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no chromium found: CI must check what the page draws; install the package chromium")
		}
		t.Skip("NOT TESTED: no chromium found, so nothing checks what the page draws")
	}
	if !browser.shared {
		ctx, cancel := start(path)
		t.Cleanup(cancel)
		return open(ctx, t)
	}
	browser.once.Do(func() {
		browser.ctx, browser.cancel = start(path)
		open(browser.ctx, t)
	})
	ctx, cancel := chromedp.NewContext(browser.ctx)
	t.Cleanup(cancel)
	return open(ctx, t)
}

// open starts the browser and the tab of a context.
func open(ctx context.Context, t *testing.T) context.Context {
	t.Helper()
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

func find() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// start prepares a browser; the first tab starts it.
func start(path string) (context.Context, context.CancelFunc) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("force-color-profile", "srgb"),
		chromedp.WindowSize(width, height))
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(ctx)
	return ctx, func() {
		cancel()
		end()
	}
}
