package store

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/ingest/edge"
)

// PasswordVariable names the environment variable that holds the server's password
// when the target does not.
const PasswordVariable = "CSIGSCOPE_STORE_PASSWORD"

// Kinds of targets.
const (
	KindNone     = "none"
	KindEmbedded = "embedded"
	KindServer   = "clickhouse"
)

// ErrTarget is the error for a target that cannot be parsed.
var ErrTarget = errors.New(`expected none, embedded[:DIR] or clickhouse://USER[:PASSWORD]@HOST[:PORT][/DB]`)

// Target is the destination of stored rows.
type Target struct {
	Kind     string              // KindNone, KindEmbedded or KindServer
	Dir      string              // data folder of the embedded engine; empty for the default
	Database string              // DefaultDatabase unless the target names another
	Options  *clickhouse.Options // of a server; nil otherwise
	// At returns the options for another server of the same cluster, at host:port, with the user,
	// the password and the files of the target.
	At     func(address string) (*clickhouse.Options, error)
	Limits Limits   // of queries to a server; zero where the target sets none
	Files  []string // of TLS to a server, read again for each connection; some may be empty
}

// String returns the target without its password.
func (t Target) String() string {
	switch {
	case t.Kind == KindEmbedded && t.Dir != "":
		return "embedded:" + t.Dir
	case t.Kind != KindServer:
		return t.Kind
	}
	u := url.URL{Scheme: KindServer, User: url.User(t.Options.Auth.Username), Host: strings.Join(t.Options.Addr, ","), Path: t.Database}
	return u.String()
}

// ParseDSN parses a target. A server's may have the parameters secure, ca, cert, key (PEM files),
// skip_verify and dial_timeout; ca, cert, key and skip_verify imply secure. password_file names a
// file whose first line is the password. max_execution_time (a duration such as 30s),
// max_rows_to_read, max_memory_usage and max_result_rows limit each query. The default port is
// 9000, with TLS 9440. Errors never show the password.
func ParseDSN(s string) (Target, error) { return parseDSN(s, true) }

// CheckDSN validates a target as ParseDSN does, but does not read the files that it names.
func CheckDSN(s string) error {
	_, err := parseDSN(s, false)
	return err
}

func parseDSN(s string, files bool) (Target, error) {
	kind, rest, _ := strings.Cut(s, ":")
	switch {
	case s == KindNone:
		return Target{Kind: KindNone}, nil
	case kind == KindEmbedded:
		if rest == "" && s != KindEmbedded {
			return Target{}, fmt.Errorf("read store %q: no folder after the colon: %w", s, ErrTarget)
		}
		return Target{Kind: KindEmbedded, Dir: rest, Database: DefaultDatabase}, nil
	case kind == KindServer && strings.HasPrefix(rest, "//"):
		return parseServer(s, files)
	}
	return Target{}, fmt.Errorf("read store %q: %w", kind, ErrTarget)
}

func parseServer(s string, files bool) (Target, error) {
	u, err := url.Parse(s)
	if err != nil {
		// url.Error quotes the whole text, password included.
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return Target{}, fmt.Errorf("read store clickhouse://: %w: %w", err, ErrTarget)
	}
	fail := func(err error) (Target, error) {
		return Target{}, fmt.Errorf("read store clickhouse://%s: %w", u.Host, err)
	}
	t := Target{Kind: KindServer, Database: strings.TrimPrefix(u.Path, "/")}
	t.Database = cmp.Or(t.Database, DefaultDatabase)
	if !databaseName.MatchString(t.Database) {
		return fail(fmt.Errorf("database %q: expected letters, digits and _, at most 64", t.Database))
	}
	if u.Hostname() == "" {
		return fail(fmt.Errorf("no host: %w", ErrTarget))
	}
	p, err := parseParameters(u.RawQuery)
	if err != nil {
		return fail(err)
	}
	if err := p.check(u.User); err != nil {
		return fail(err)
	}
	if !files {
		return t, nil
	}
	port := u.Port()
	if port == "" {
		port = "9000"
		if p.encrypted() {
			port = "9440"
		}
	}
	login, err := auth(u.User, p.passwordFile)
	if err != nil {
		return fail(err)
	}
	t.Limits, t.Files = p.limits, []string{p.ca, p.cert, p.key}
	t.At = func(address string) (*clickhouse.Options, error) { return p.options(address, login) }
	if t.Options, err = t.At(net.JoinHostPort(u.Hostname(), port)); err != nil {
		return fail(err)
	}
	return t, nil
}

// options returns the connection options for one server.
func (p parameters) options(address string, login clickhouse.Auth) (*clickhouse.Options, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("read address: %w", err)
	}
	config, err := p.tls(host)
	return &clickhouse.Options{
		Protocol:    clickhouse.Native,
		Addr:        []string{address},
		Auth:        login,
		TLS:         config,
		DialTimeout: p.dialTimeout,
		Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
	}, err
}

const (
	passwordFile = "password_file"
	maxPassword  = 4096 // bytes read from the file
)

// auth takes the password from the target, else from the file, else from the environment.
func auth(user *url.Userinfo, file string) (clickhouse.Auth, error) {
	a := clickhouse.Auth{Username: cmp.Or(user.Username(), "default")}
	password, given := user.Password()
	switch {
	case given:
		a.Password = password
	case file == "":
		a.Password = os.Getenv(PasswordVariable)
	default:
		f, err := os.Open(file)
		if err != nil {
			return a, fmt.Errorf("read password_file: %w", err)
		}
		defer f.Close()
		line, err := bufio.NewReader(io.LimitReader(f, maxPassword)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return a, fmt.Errorf("read password_file: %w", err)
		}
		if a.Password = strings.TrimRight(line, "\r\n"); a.Password == "" {
			return a, fmt.Errorf("read password_file %s: its first line is empty", file)
		}
	}
	return a, nil
}

// WithoutPassword returns a target without its password, and whether it had one. For a text that
// is not a target it returns the empty string and true, since a password could be anywhere in it.
func WithoutPassword(dsn string) (string, bool) {
	kind, rest, _ := strings.Cut(dsn, ":")
	if dsn == "" || dsn == KindNone || kind == KindEmbedded {
		return dsn, false
	}
	u, err := url.Parse(dsn)
	if err != nil || kind != KindServer || !strings.HasPrefix(rest, "//") {
		return "", true
	}
	_, held := u.User.Password()
	parameters := u.Query()
	for name := range parameters {
		if name != passwordFile && strings.Contains(strings.ToLower(name), "password") {
			parameters.Del(name)
			held = true
		}
	}
	if !held {
		return dsn, false
	}
	u.User, u.RawQuery = url.User(u.User.Username()), parameters.Encode()
	return u.String(), true
}

// parameters are the part of a target after the question mark.
type parameters struct {
	secure, skipVerify bool
	ca, cert, key      string
	passwordFile       string
	dialTimeout        time.Duration
	limits             Limits
}

func parseParameters(query string) (parameters, error) {
	p := parameters{dialTimeout: 5 * time.Second}
	values, err := url.ParseQuery(query)
	if err != nil {
		return p, fmt.Errorf("read parameters: %w", err)
	}
	for name, v := range values {
		if len(v) != 1 {
			return p, fmt.Errorf("parameter %s is given %d times: expected once", name, len(v))
		}
		switch name {
		case "secure":
			p.secure, err = strconv.ParseBool(v[0])
		case "skip_verify":
			p.skipVerify, err = strconv.ParseBool(v[0])
		case "dial_timeout":
			p.dialTimeout, err = positiveTime(v[0])
		case passwordFile:
			p.passwordFile = v[0]
		case "ca":
			p.ca = v[0]
		case "cert":
			p.cert = v[0]
		case "key":
			p.key = v[0]
		case settingTime:
			p.limits.Time, err = positiveTime(v[0])
		case settingReadRows:
			p.limits.ReadRows, err = positiveNumber(v[0])
		case settingMemory:
			p.limits.Memory, err = positiveNumber(v[0])
		case settingResultRows:
			p.limits.ResultRows, err = positiveNumber(v[0])
		default:
			return p, fmt.Errorf("unknown parameter %s: expected %s, secure, ca, cert, key, skip_verify, dial_timeout, %s, %s, %s or %s",
				name, passwordFile, settingTime, settingReadRows, settingMemory, settingResultRows)
		}
		if err != nil {
			return p, fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	return p, nil
}

func positiveTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("expected a time above 0")
	}
	return d, err
}

func positiveNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err == nil && n == 0 {
		err = errors.New("expected a number above 0")
	}
	return n, err
}

// check rejects combinations of parameters that contradict each other.
func (p parameters) check(user *url.Userinfo) error {
	if _, given := user.Password(); given && p.passwordFile != "" {
		return errors.New("a password and password_file: expected one of them")
	}
	if (p.cert == "") != (p.key == "") {
		return errors.New("cert and key: expected both or none")
	}
	return nil
}

// files are those of TLS.
func (p parameters) files() edge.TLSFiles {
	return edge.TLSFiles{Cert: p.cert, Key: p.key, CA: p.ca}
}

// encrypted reports whether connections use TLS.
func (p parameters) encrypted() bool {
	return p.secure || p.skipVerify || p.files() != (edge.TLSFiles{})
}

// tls returns nil for plain connections. The files are read again for each connection.
func (p parameters) tls(host string) (*tls.Config, error) {
	if !p.encrypted() {
		return nil, nil
	}
	files := p.files()
	if _, err := files.Load(); err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: host, InsecureSkipVerify: p.skipVerify, MinVersion: tls.VersionTLS12}
	if p.cert != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			k, err := files.Load()
			return k.Cert, err
		}
	}
	if p.ca != "" && !p.skipVerify {
		config.InsecureSkipVerify = true // RootCAs cannot change; VerifyConnection does the same checks with the current files
		config.VerifyConnection = func(s tls.ConnectionState) error {
			k, err := files.Load()
			if err != nil {
				return err
			}
			o := x509.VerifyOptions{Roots: k.Pool, DNSName: host, Intermediates: x509.NewCertPool()}
			for _, c := range s.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			_, err = s.PeerCertificates[0].Verify(o)
			return err
		}
	}
	return config, nil
}
