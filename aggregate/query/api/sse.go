package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// events sends a watch as server-sent events.
type events struct {
	out     http.ResponseWriter
	send    *http.ResponseController
	patient time.Duration // for one event
}

// serve answers a request with the watch, until the reader goes.
func (w *watch) serve(r *http.Request, out http.ResponseWriter) {
	e := &events{out: out, send: http.NewResponseController(out), patient: w.api.SendTimeout}
	// The server's limits are those of short answers. A writer that knows none is a test's.
	_ = e.send.SetReadDeadline(time.Time{})
	out.Header().Set("Content-Type", "text/event-stream")
	out.Header().Set("X-Accel-Buffering", "no")
	out.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	// A comment makes proxies pass on the headers.
	if err := e.write([]byte(":\n\n")); err == nil {
		_ = w.run(r.Context(), e.event)
	}
}

func (e *events) event(told *event) error {
	b, err := told.sse()
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return e.write(b)
}

// sse is the event as it is sent. It is not to be written to.
func (e *event) sse() ([]byte, error) {
	if e.frame != nil {
		return e.frame.get(e.appendSSE)
	}
	return e.appendSSE()
}

func (e *event) appendSSE() ([]byte, error) {
	data, err := e.json()
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(e.id)+len(e.name)+len(data)+len("id: \nevent: \ndata: \n\n"))
	if e.id != "" {
		b = append(append(append(b, "id: "...), e.id...), '\n')
	}
	b = append(append(append(b, "event: "...), e.name...), "\ndata: "...)
	return append(append(b, data...), "\n\n"...), nil
}

func (e *events) write(b []byte) error {
	if err := e.send.SetWriteDeadline(time.Now().Add(e.patient)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := e.out.Write(b); err != nil {
		return err
	}
	return e.send.Flush()
}
