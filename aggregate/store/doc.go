// Package store keeps partial aggregates in ClickHouse: the schema and its migrations, writing
// with row identities, and reading through the views that define the analytics.
//
// It knows tables, views and the ways to reach a server; a server and the embedded engine look
// the same to it. It must never know HTTP handlers, dashboards, or how packets became partials.
package store
