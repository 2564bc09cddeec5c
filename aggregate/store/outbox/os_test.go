package outbox

import (
	"errors"
	"path/filepath"
	"testing"
)

// TestOS works on real files.
func TestOS(t *testing.T) {
	h := newHistory(t)
	dir := filepath.Join(t.TempDir(), "a", "b")
	open := func() (*Log, error) {
		o := h.options(OS{})
		o.Dir = dir
		return Open(o)
	}
	for life := range 3 {
		l, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := open(); !errors.Is(err, ErrOwned) {
			t.Errorf("second owner: %v, want ErrOwned", err)
		}
		h.work(l)
		if life == 2 {
			h.send(l, 1000)
			h.check()
			for _, s := range l.Acked() {
				if err := l.Release(s); err != nil {
					t.Error(err)
				}
			}
			if got := l.Stats(); got.Bytes != 0 || got.Waiting != (Waiting{}) {
				t.Errorf("%+v after all was sent and released", got)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(Record{Weight: 1}); !errors.Is(err, ErrClosed) {
			t.Errorf("append after closing: %v, want ErrClosed", err)
		}
	}
}
