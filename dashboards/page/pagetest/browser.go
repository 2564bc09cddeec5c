package pagetest

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// browser is the Chromium that all visits of a test binary share: starting one takes
// longer than most visits. Main ends it.
var browser struct {
	once   sync.Once
	shared bool // Main is in charge
	ctx    context.Context
	cancel context.CancelFunc
}

// Main runs a package's tests with one browser for all of their visits, and gives the exit
// code. Without it each visit starts a browser of its own.
func Main(m *testing.M) int {
	browser.shared = true
	defer func() {
		if browser.cancel != nil {
			browser.cancel()
		}
	}()
	return m.Run()
}

// tab is a new tab, which is closed when the test ends. Without a Chromium the test is
// skipped, except in CI, where a test that never runs would go unnoticed. Short tests look
// for data races, and what a browser draws has none: what it asks is raced in query/api.
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

// open makes the browser and the tab of a context.
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

// start prepares a browser, which the first tab starts.
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
