package credential

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes bounds a name, in bytes.
const MaxNameBytes = 256

// CheckName refuses names that would spoil a log or a metric.
func CheckName(name string) error {
	if name == "" || len(name) > MaxNameBytes || !utf8.ValidString(name) {
		return fmt.Errorf("name %.64q: expected 1 to %d bytes of UTF-8", name, MaxNameBytes)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("name %.64q: expected printable characters", name)
		}
	}
	return nil
}

// Limited bounds what a stranger can write into a log line.
func Limited(s string) string {
	if len(s) > MaxNameBytes {
		return s[:MaxNameBytes] + "..."
	}
	return s
}

// nameOf is who a certificate belongs to: its first URI (as in SPIFFE), or else its first
// DNS name, or else its common name.
func nameOf(c *x509.Certificate) (string, error) {
	name := c.Subject.CommonName
	switch {
	case len(c.URIs) > 0:
		name = c.URIs[0].String()
	case len(c.DNSNames) > 0:
		name = c.DNSNames[0]
	}
	return name, CheckName(name)
}

// IsLoopback tells whether this machine alone reaches a host.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// InClear tells whether others can read what is sent to a URL, and change it on the way.
func InClear(u *url.URL) bool { return u.Scheme == "http" && !IsLoopback(u.Hostname()) }

// CheckHost refuses a request that names another host than this machine's loopback. It is for
// listeners on loopback: a web site that points its own name at 127.0.0.1 would otherwise
// reach them through the browser of a visitor on this machine.
func CheckHost(r *http.Request) error {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if !IsLoopback(strings.Trim(host, "[]")) {
		return fmt.Errorf("this address is on loopback, and the request is for host %.100q: expected localhost or 127.0.0.1", host)
	}
	return nil
}
