package page_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

const width, height = 1400, 900

// browser starts a headless Chromium. Without one the test is skipped, except in
// CI, where a test that never runs would go unnoticed.
func browser(t *testing.T) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no chromium found: CI must check what the page draws; install the package chromium")
		}
		t.Skip("NOT TESTED: no chromium found, so nothing checks what the page draws")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("force-color-profile", "srgb"),
		chromedp.WindowSize(width, height))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// visitor is a browser tab. It fails the test on exceptions, console output,
// violations of the page's policy, and requests to anywhere but its own origin.
type visitor struct {
	t      *testing.T
	ctx    context.Context
	mutex  sync.Mutex
	faults []string
}

func visit(t *testing.T, url, theme string) *visitor {
	t.Helper()
	ctx, cancel := context.WithTimeout(browser(t), 2*time.Minute)
	t.Cleanup(cancel)
	v := &visitor{t: t, ctx: ctx}
	t.Cleanup(v.check)
	if err := chromedp.Listen(ctx, v.listen(url)); err != nil {
		t.Fatal(err)
	}
	call(v, log.Enable, cdp.Empty{})
	call(v, runtime.Enable, cdp.Empty{})
	call(v, network.Enable, network.EnableParams{})
	call(v, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Zurich"})
	call(v, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
	})
	v.do(chromedp.EmulateViewport(width, height), chromedp.Navigate(url))
	v.wait("window.csigscope?.ready === true")
	return v
}

func (v *visitor) listen(origin string) func(any) {
	fault := func(format string, args ...any) {
		v.mutex.Lock()
		defer v.mutex.Unlock()
		v.faults = append(v.faults, fmt.Sprintf(format, args...))
	}
	return func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			text := e.ExceptionDetails.Text
			if e.ExceptionDetails.Exception != nil {
				text += " " + e.ExceptionDetails.Exception.Description
			}
			fault("page threw: %s", text)
		case *runtime.EventConsoleAPICalled:
			fault("page wrote to the console: %s", e.Type)
		case *log.EventEntryAdded:
			fault("browser logged: %s", e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if url := e.Request.URL; !strings.HasPrefix(url, origin) && !strings.HasPrefix(url, "data:") {
				fault("page asked for %s", url)
			}
		}
	}
}

func (v *visitor) check() {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	for _, f := range v.faults {
		v.t.Error(f)
	}
}

func call[P, R any](v *visitor, command cdp.Command[P, R], params P) {
	v.t.Helper()
	if _, err := chromedp.Call(v.ctx, command, params); err != nil {
		v.t.Fatal(err)
	}
}

func (v *visitor) do(steps ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	if err := chromedp.Do(v.ctx, steps...); err != nil {
		v.t.Fatal(err)
	}
}

func (v *visitor) wait(condition string) {
	v.t.Helper()
	v.do(chromedp.Poll[chromedp.Void](condition, chromedp.WithPollingTimeout(20*time.Second)))
}

func (v *visitor) click(selector string) {
	v.t.Helper()
	v.do(chromedp.Click(chromedp.CSS(selector)))
}

func evaluate[T any](v *visitor, format string, args ...any) T {
	v.t.Helper()
	out, err := chromedp.Run(v.ctx, chromedp.Evaluate[T](fmt.Sprintf(format, args...)))
	if err != nil {
		v.t.Fatal(err)
	}
	return out
}

func (v *visitor) setWindow(window int) {
	v.t.Helper()
	evaluate[chromedp.Void](v, "csigscope.setWindow(%d)", window)
}

// screenshot is the viewport. With CSIGSCOPE_SCREENSHOTS it is also kept in that
// folder, for people to look at.
func (v *visitor) screenshot(name string) image.Image {
	v.t.Helper()
	raw, err := chromedp.Run(v.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		v.t.Fatal(err)
	}
	if folder := os.Getenv("CSIGSCOPE_SCREENSHOTS"); folder != "" {
		file := strings.ReplaceAll(v.t.Name(), "/", "-") + "-" + name + ".png"
		if err := os.WriteFile(filepath.Join(folder, file), raw, 0o644); err != nil {
			v.t.Fatal(err)
		}
	}
	picture, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		v.t.Fatal(err)
	}
	return picture
}

type rect struct{ X, Y, Width, Height float64 }

func (r rect) middle() (x, y float64) { return r.X + r.Width/2, r.Y + r.Height/2 }

func (v *visitor) rect(side string, src, dst int) rect {
	v.t.Helper()
	return evaluate[rect](v, "csigscope.cellRect(%q, %d, %d)", side, src, dst)
}

func colorAt(picture image.Image, r rect) string {
	x, y := r.middle()
	red, green, blue, _ := picture.At(int(x), int(y)).RGBA()
	return fmt.Sprintf("rgb(%d, %d, %d)", red>>8, green>>8, blue>>8)
}
