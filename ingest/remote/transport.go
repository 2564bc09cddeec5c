package remote

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/wire"
)

// rawRequest is an encoded wire.PushRequest or wire.ShareRequest.
type rawRequest struct{ body []byte }

// rawCodec sends requests in their spooled form.
type rawCodec struct{}

// Name implements connect.Codec.
func (rawCodec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (c rawCodec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

// MarshalAppend copies the request into dst. The library keeps the result for later requests, so
// it must not share memory with the body, which the sender reuses.
func (rawCodec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	r, ok := m.(*rawRequest)
	if !ok {
		return nil, fmt.Errorf("encode %T: no request", m)
	}
	return append(dst, r.body...), nil
}

// maxAnswerBytes is the maximum size of an answer, in bytes, which bounds the client's allocation.
const maxAnswerBytes = 1 << 16

// Unmarshal implements connect.Codec.
func (rawCodec) Unmarshal(data []byte, m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("decode %T: no answer", m)
	}
	if len(data) > maxAnswerBytes {
		return fmt.Errorf("answer of %d bytes: expected at most %d", len(data), maxAnswerBytes)
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, message)
}

// dial prepares connections; they are opened on demand.
func (c *Client) dial() (err error) {
	if c.http, err = newHTTPClient(c.cfg.TLS, c.cfg.TokenFile, c.cfg.Now, c.cfg.Logger); err != nil {
		return err
	}
	for _, u := range c.cfg.Collectors {
		u = strings.TrimSuffix(u, "/")
		c.endpoints = append(c.endpoints, endpoint{u, connect.NewClient[rawRequest, wire.PushResponse](c.http, u+wire.IngestServicePushProcedure, clientOptions(c.cfg.noCompression)...)})
	}
	return nil
}

// newHTTPClient prepares connections to collectors with these credentials.
func newHTTPClient(files edge.TLSFiles, tokenFile string, now func() time.Time, logger *slog.Logger) (*http.Client, error) {
	dialer := &net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}
	base := &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTime, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 90 * time.Second,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
	return edge.NewClient(base, files, tokenFile, now, logger)
}

func clientOptions(plain bool) []connect.ClientOption {
	options := []connect.ClientOption{connect.WithCodec(rawCodec{}), connect.WithReadMaxBytes(maxAnswerBytes), connect.WithCompressMinBytes(1 << 10)}
	if plain {
		return options
	}
	decompressor := func() connect.Decompressor { return &bounded{most: maxAnswerBytes, open: openZstd} }
	return append(options, connect.WithAcceptCompression(CompressionZstd, decompressor, newZstd), connect.WithSendCompression(CompressionZstd))
}

// dialTime is the time limit for opening a connection, and for its handshake.
const dialTime = 10 * time.Second

// push sends one request to the current collector.
func (c *Client) push(ctx context.Context, body []byte) (*wire.PushResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	response, err := c.endpoints[c.current].call.CallUnary(ctx, newRequest(body, c.cfg.Now()))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Pushes++
	c.stats.SentBytes += uint64(len(body))
	if err != nil {
		wait, poison := judge(err)
		c.stats.Answering = wait > 0 || poison
		c.stats.Failures++
		return nil, err
	}
	c.answered = c.cfg.Now()
	c.stats.Answering, c.stats.LastAnswerNS = true, c.answered.UnixNano()
	return response.Msg, nil
}

// newRequest makes a request of an encoded message, with its sending time as a header.
func newRequest(body []byte, now time.Time) *connect.Request[rawRequest] {
	request := connect.NewRequest(&rawRequest{body})
	request.Header().Set(sentAt, strconv.FormatInt(now.UnixNano(), 10))
	return request
}
