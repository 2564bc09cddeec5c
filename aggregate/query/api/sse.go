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
	packer  *packer       // nil where events are sent as they are
	stream  gzipStream    // where they are not
}

// serve answers a request with the watch, until the reader goes.
func (w *watch) serve(r *http.Request, out http.ResponseWriter) {
	e := &events{out: out, send: http.NewResponseController(out), patient: w.api.SendTimeout}
	// The server's limits are those of short answers. A writer that knows none is a test's.
	_ = e.send.SetReadDeadline(time.Time{})
	h := out.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	if w.in.Encoding != inFrames { // numbers in base64 would hardly be shorter
		h.Add("Vary", "Accept-Encoding")
		if takesGzip(r.Header) {
			h.Set("Content-Encoding", "gzip")
			e.packer = &w.api.packer
		}
	}
	out.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	if err := e.begin(); err != nil {
		return
	}
	_ = w.run(r.Context(), e.event)
	if e.packer != nil { // where the reader has gone, this fails
		_ = e.write(e.stream.end())
	}
}

// begin sends a comment, which makes proxies pass on the headers.
func (e *events) begin() error {
	comment := []byte(":\n\n")
	if e.packer == nil {
		return e.write(comment)
	}
	p, err := e.packer.pack(comment)
	if err != nil {
		return err
	}
	e.stream.add(p)
	return e.write(append(gzipHead[:len(gzipHead):len(gzipHead)], p.blocks...))
}

func (e *events) event(told *event) error {
	if e.packer == nil {
		b, err := told.sse()
		if err != nil {
			return err
		}
		return e.write(b)
	}
	p, err := told.packed(e.packer)
	if err != nil {
		return err
	}
	if err := e.write(p.blocks); err != nil {
		return err
	}
	e.stream.add(p)
	return nil
}

// sse is the event as it is sent. It is not to be written to.
func (e *event) sse() ([]byte, error) {
	if e.sent != nil {
		return e.sent.plain.get(e.appendSSE)
	}
	return e.appendSSE()
}

// packed is the same as parts of gzip streams have it.
func (e *event) packed(by *packer) (*packed, error) {
	pack := func() (*packed, error) {
		b, err := e.sse()
		if err != nil {
			return nil, err
		}
		return by.pack(b)
	}
	if e.sent != nil {
		return e.sent.packed.get(pack)
	}
	return pack()
}

func (e *event) appendSSE() ([]byte, error) {
	data, err := e.json()
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
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
