package chdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/csigscope/csigscope/ingest/retry"
)

// maxControlAnswer bounds the child's answers to control requests, in bytes.
const maxControlAnswer = 64 << 10

// Listen makes the engine answer other programs of this machine, read-only, over ClickHouse's
// HTTP interface at a loopback TCP address, host:port, until Close. Port 0 takes a free one. It
// returns the address.
//
// An engine has at most one such address, shared by all attached processes. If another one is
// open already, the error names it; an address that other machines could reach is refused too
// (ErrAddress). A restarted engine opens the address again.
func (e *Engine) Listen(ctx context.Context, address string) (string, error) {
	address, err := checkLoopback(address)
	if err != nil {
		return "", err
	}
	open, err := e.askToListen(ctx, address)
	if err != nil {
		return "", err
	}
	e.mu.Lock()
	e.address = open
	e.mu.Unlock()
	return open, nil
}

func (e *Engine) askToListen(ctx context.Context, address string) (string, error) {
	values := url.Values{"id": {e.id}, "address": {address}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/listen?"+values.Encode(), nil)
	if err != nil {
		return "", err
	}
	response, err := e.control.Do(request)
	if err != nil {
		return "", fmt.Errorf("listen on %s: %w", address, err)
	}
	defer response.Body.Close()
	var answer listenAnswer
	if err := json.NewDecoder(io.LimitReader(response.Body, maxControlAnswer)).Decode(&answer); err != nil {
		return "", fmt.Errorf("listen on %s: read the engine's answer: %w", address, err)
	}
	if answer.Error != "" {
		return "", errors.New(answer.Error)
	}
	return answer.Address, nil
}

// listenAgain opens the address on a restarted engine. The previous process may hold it for a
// moment. On failure storing continues without it.
func (e *Engine) listenAgain() {
	const tries, pause = 20, 100 * time.Millisecond
	e.mu.Lock()
	address := e.address
	e.mu.Unlock()
	if address == "" {
		return
	}
	var err error
	for range tries {
		if _, err = e.askToListen(e.lifetime, address); err == nil {
			return
		}
		if !retry.Sleep(e.lifetime, pause) {
			return
		}
	}
	e.options.Logger.Error("cannot listen for ClickHouse clients again", slog.String("address", address), slog.Any("error", err))
}
