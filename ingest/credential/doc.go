// Package credential tells who the other end of a connection is: by its certificate, or by
// a bearer token. Files with keys, authorities and tokens are read again when they change.
//
// It knows files, TLS and the header Authorization. It must never know what whoever was let
// in may do, or what is served.
package credential
