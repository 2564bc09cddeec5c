package ingest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/ingest/credential"
	"github.com/csigscope/csigscope/ingest/wire"
)

// rawRequest is a wire.PushRequest that is encoded already.
type rawRequest struct{ body []byte }

// rawCodec sends requests as they lie in the spool.
type rawCodec struct{}

// Name implements connect.Codec.
func (rawCodec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (rawCodec) Marshal(m any) ([]byte, error) {
	r, ok := m.(*rawRequest)
	if !ok {
		return nil, fmt.Errorf("encode %T: no request", m)
	}
	return r.body, nil
}

// maxOutcomes bounds what an answer may make the client allocate.
const maxOutcomes = 1 << 16

// Unmarshal implements connect.Codec.
func (rawCodec) Unmarshal(data []byte, m any) error {
	message, ok := m.(*wire.PushResponse)
	if !ok {
		return fmt.Errorf("decode %T: no answer", m)
	}
	if len(data) > maxOutcomes {
		return fmt.Errorf("answer of %d bytes: expected at most %d", len(data), maxOutcomes)
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, message)
}

// dial prepares connections; they are made when they are needed.
func (c *Client) dial() error {
	k, err := c.cfg.TLS.Watch(c.cfg.Now, c.cfg.Logger)
	if err != nil {
		return err
	}
	bearer := func() string { return "" }
	if c.cfg.TokenFile != "" {
		w, err := credential.Watch(func() (string, error) { return credential.ReadToken(c.cfg.TokenFile) }, c.cfg.Now, c.cfg.Logger, c.cfg.TokenFile)
		if err != nil {
			return err
		}
		bearer = w.Get
	}
	dialer := &net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}
	transport := &http.Transport{
		DialContext: dialer.DialContext, DialTLSContext: dialTLS(k, dialer), ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 90 * time.Second,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
	c.http = &http.Client{Transport: &credential.Bearer{Transport: transport, Token: bearer}}
	for _, u := range c.cfg.Collectors {
		u = strings.TrimSuffix(u, "/")
		c.peers = append(c.peers, peer{u, connect.NewClient[rawRequest, wire.PushResponse](c.http, u+wire.IngestServicePushProcedure, c.options()...)})
	}
	return nil
}

func (c *Client) options() []connect.ClientOption {
	options := []connect.ClientOption{connect.WithCodec(rawCodec{}), connect.WithReadMaxBytes(maxOutcomes), connect.WithCompressMinBytes(1 << 10)}
	if c.cfg.NoCompression {
		return options
	}
	decompressor := func() connect.Decompressor { return &bounded{most: maxOutcomes, open: openZstd} }
	return append(options, connect.WithAcceptCompression(CompressionZstd, decompressor, newZstd), connect.WithSendCompression(CompressionZstd))
}

// dialTLS connects with the files as they are at the moment.
func dialTLS(k *credential.Watched[credential.Keys], dialer *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		o := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, NextProtos: []string{"h2", "http/1.1"}}
		if k != nil {
			now := k.Get()
			o.RootCAs = now.Pool
			if now.Cert != nil {
				o.Certificates = []tls.Certificate{*now.Cert}
			}
		}
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		secured := tls.Client(conn, o)
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		if err := secured.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return secured, nil
	}
}

// dialTime bounds the making of a connection, and its handshake.
const dialTime = 10 * time.Second

// push sends one request to a collector.
func (c *Client) push(ctx context.Context, body []byte) (*wire.PushResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	request := connect.NewRequest(&rawRequest{body})
	request.Header().Set(sentAt, strconv.FormatInt(c.cfg.Now().UnixNano(), 10))
	response, err := c.peers[c.current].call.CallUnary(ctx, request)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Pushes++
	c.stats.SentBytes += uint64(len(body))
	if err != nil {
		wait, poison := c.judge(err)
		c.stats.Answering = wait > 0 || poison
		c.stats.Failures++
		return nil, err
	}
	c.answered = c.cfg.Now()
	c.stats.Answering, c.stats.LastAnswerNS = true, c.answered.UnixNano()
	return response.Msg, nil
}
