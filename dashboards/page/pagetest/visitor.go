// Package pagetest visits the page with a headless Chromium, for tests.
//
// It knows what a user of the page can see and do. It must never know the expected numbers: these
// belong to the test.
package pagetest

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"os"
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
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"
)

const width, height = 1400, 900

// Visitor is a browser tab. It fails the test on exceptions, console output, violations of the
// page's content security policy, and requests to other origins.
type Visitor struct {
	t      *testing.T
	ctx    context.Context
	mutex  sync.Mutex
	faults []string
	excuse string
}

// Visit opens the page at url in a new tab with the theme "dark" or "light", and waits until it is
// drawn.
func Visit(t *testing.T, url, theme string) *Visitor {
	t.Helper()
	v := Enter(t, url, theme, "")
	v.Wait(Drawn)
	return v
}

// Drawn is a JavaScript condition: the page is drawn.
const Drawn = "window.csigscope?.ready === true"

// Enter is like Visit for a page that may have nothing to draw yet; see Excuse for excuse.
func Enter(t *testing.T, url, theme, excuse string) *Visitor {
	t.Helper()
	ctx, cancel := context.WithTimeout(tab(t), 10*time.Minute)
	t.Cleanup(cancel)
	v := &Visitor{t: t, ctx: ctx, excuse: excuse}
	t.Cleanup(v.check)
	origin, _, _ := strings.Cut(url, "#")
	if err := chromedp.Listen(ctx, v.listen(origin)); err != nil {
		t.Fatal(err)
	}
	call(v, log.Enable, cdp.Empty{})
	call(v, runtime.Enable, cdp.Empty{})
	call(v, network.Enable, network.EnableParams{})
	// The test servers' certificates have an unknown authority.
	call(v, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true})
	call(v, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Zurich"})
	call(v, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
	})
	v.Resize(width, height)
	v.navigate(url)
	return v
}

// Open opens an address of the same origin and waits until the page is drawn.
func (v *Visitor) Open(url string) {
	v.t.Helper()
	v.navigate(url)
	v.Wait(Drawn)
}

// Leave leaves the page, so that its server can stop.
func (v *Visitor) Leave() {
	v.t.Helper()
	v.Do(chromedp.Navigate("about:blank"))
}

// navigate loads an address again, even if only its fragment differs from the present one.
func (v *Visitor) navigate(url string) {
	v.t.Helper()
	v.Do(chromedp.Navigate("about:blank"), chromedp.Navigate(url))
}

// Resize sets the viewport's size in CSS pixels.
func (v *Visitor) Resize(width, height int64) {
	v.t.Helper()
	v.Do(chromedp.EmulateViewport(width, height))
}

// See emulates a color vision deficiency.
func (v *Visitor) See(deficiency emulation.SetEmulatedVisionDeficiencyType) {
	v.t.Helper()
	call(v, emulation.SetEmulatedVisionDeficiency, emulation.SetEmulatedVisionDeficiencyParams{Type: deficiency})
}

// Press presses keys in order, at the present focus.
func (v *Visitor) Press(keys ...string) {
	v.t.Helper()
	for _, key := range keys {
		v.Do(chromedp.KeyEvent(key))
	}
}

func (v *Visitor) listen(origin string) func(any) {
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
			if v.excused(e.Entry.Text) {
				return
			}
			fault("browser logged: %s", e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if url := e.Request.URL; !strings.HasPrefix(url, origin) && !strings.HasPrefix(url, "data:") && url != "about:blank" {
				fault("page asked for %s", url)
			}
		}
	}
}

// Excuse ignores browser log messages that contain a text, for example about a server that the test
// has stopped.
func (v *Visitor) Excuse(text string) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.excuse = text
}

func (v *Visitor) excused(text string) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return v.excuse != "" && strings.Contains(text, v.excuse)
}

func (v *Visitor) check() {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	for _, f := range v.faults {
		v.t.Error(f)
	}
}

func call[P, R any](v *Visitor, command cdp.Command[P, R], params P) {
	v.t.Helper()
	if _, err := chromedp.Call(v.ctx, command, params); err != nil {
		v.t.Fatal(err)
	}
}

// Do runs browser actions.
func (v *Visitor) Do(steps ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	if err := chromedp.Do(v.ctx, steps...); err != nil {
		v.t.Fatal(err)
	}
}

// Says waits until an element has the given text.
func (v *Visitor) Says(id, text string) {
	v.t.Helper()
	v.Wait(fmt.Sprintf("document.getElementById(%q)?.textContent === %q", id, text))
}

// Wait waits until a JavaScript condition holds. Its limit of minutes also suffices on a busy
// machine.
func (v *Visitor) Wait(condition string) {
	v.t.Helper()
	v.WaitFor(condition, 2*time.Minute)
}

// WaitFor is like Wait with its own limit. If a new page loads in the meantime, the condition is
// evaluated there.
func (v *Visitor) WaitFor(condition string, limit time.Duration) {
	v.t.Helper()
	for end := time.Now().Add(limit); ; {
		err := chromedp.Do(v.ctx, chromedp.Poll[chromedp.Void](condition, chromedp.WithPollingTimeout(time.Until(end))))
		switch {
		case err == nil:
			return
		case !strings.Contains(err.Error(), "Cannot find context") && !strings.Contains(err.Error(), "context was destroyed"), time.Now().After(end):
			v.t.Fatalf("wait for %s: %v", condition, err)
		}
	}
}

// Reload runs a step that makes the page load again, and waits until loading starts.
func (v *Visitor) Reload(step func()) {
	v.t.Helper()
	const gone = "window.old !== true"
	Evaluate[bool](v, "window.old = true")
	step()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		// Between the two pages the evaluation fails.
		if loaded, err := chromedp.Run(v.ctx, chromedp.Evaluate[bool](gone)); err == nil && loaded {
			return
		}
	}
	v.t.Fatal("the page was not loaded again")
}

// Click clicks the element with a CSS selector.
func (v *Visitor) Click(selector string) {
	v.t.Helper()
	v.Do(chromedp.Click(chromedp.CSS(selector)))
}

// Evaluate returns the value of a script on the page.
func Evaluate[T any](v *Visitor, format string, args ...any) T {
	v.t.Helper()
	out, err := chromedp.Run(v.ctx, chromedp.Evaluate[T](fmt.Sprintf(format, args...)))
	if err != nil {
		v.t.Fatal(err)
	}
	return out
}

// Import makes a module of the page available to scripts under a name: its export of that name, or
// all of its exports. It lasts until the page loads again.
func (v *Visitor) Import(name, module string) {
	v.t.Helper()
	Evaluate[chromedp.Void](v, `import("./%[2]s").then((exports) => { window.%[1]s = exports.%[1]s ?? exports; }), undefined`, name, module)
	v.Wait("window." + name + " !== undefined")
}

// SetWindow moves the scrubber to a window, -1 for the whole range, and waits until its cells are
// drawn.
func (v *Visitor) SetWindow(window int) {
	v.t.Helper()
	Evaluate[chromedp.Void](v, "csigscope.setWindow(%d)", window)
	v.Wait("!csigscope.current().waiting")
}

// Screenshot returns the viewport. With CSIGSCOPE_TEST_SCREENSHOTS it also saves it in that folder.
func (v *Visitor) Screenshot(name string) image.Image {
	v.t.Helper()
	raw, err := chromedp.Run(v.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		v.t.Fatal(err)
	}
	if folder := os.Getenv("CSIGSCOPE_TEST_SCREENSHOTS"); folder != "" {
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

// Rect is a rectangle on the page in CSS pixels.
type Rect struct{ X, Y, Width, Height float64 }

// Middle returns the center.
func (r Rect) Middle() (x, y float64) { return r.X + r.Width/2, r.Y + r.Height/2 }

// Cell returns the rectangle of a cell; side is "left" or "right".
func (v *Visitor) Cell(side string, src, dst int) Rect {
	v.t.Helper()
	return Evaluate[Rect](v, "csigscope.cellRect(%q, %d, %d)", side, src, dst)
}

// Beside returns the upper left part of a cell, away from the rank in its center.
func (r Rect) Beside() Rect { return Rect{r.X, r.Y, r.Width * 0.4, r.Height * 0.4} }

// ColorAt returns the CSS color of a screenshot at a rectangle's center.
func ColorAt(picture image.Image, r Rect) string {
	x, y := r.Middle()
	red, green, blue, _ := picture.At(int(x), int(y)).RGBA()
	return fmt.Sprintf("rgb(%d, %d, %d)", red>>8, green>>8, blue>>8)
}

// CheckCells compares the pixels of every cell in both matrices of size x size cells with the
// colors computed from the page's data.
func (v *Visitor) CheckCells(picture image.Image, size int) {
	v.t.Helper()
	painted := map[string]bool{}
	for _, side := range []string{"left", "right"} {
		colors := v.Colors(side, size)
		rects := Evaluate[[]Rect](v,
			"Array.from({length: %d}, (_, i) => csigscope.cellRect(%q, Math.floor(i / %d), i %% %d))", size*size, side, size, size)
		for i, want := range colors {
			if want == nil {
				continue
			}
			if got := ColorAt(picture, rects[i].Beside()); got != *want {
				v.t.Errorf("%s cell %d,%d is %s, data asks for %s", side, i/size, i%size, got, *want)
			}
			painted[*want] = true
		}
	}
	if len(painted) < 20 {
		v.t.Errorf("only %d colours in both matrices: the data has more", len(painted))
	}
}

// Colors returns the colors computed from the page's data, row by row; nil is a cell without data.
func (v *Visitor) Colors(side string, size int) []*string {
	v.t.Helper()
	return Evaluate[[]*string](v,
		"Array.from({length: %d}, (_, i) => csigscope.cellColor(%q, Math.floor(i / %d), i %% %d))", size*size, side, size, size)
}
