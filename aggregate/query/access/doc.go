// Package access stands before whatever answers questions over HTTP: it tells askers apart,
// holds each to its role and its limits, lets other web sites in or keeps them out, counts,
// and writes the audit log.
//
// It knows askers, roles and limits. It must never know what questions mean, how a
// credential is checked, or how answers are made.
package access
