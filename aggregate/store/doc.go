// Package store keeps rows in ClickHouse: the schema and its migrations, writing with row
// identities, and reading through the views that define every number.
//
// It knows tables, views and the ways to reach a server; a server and the embedded engine look
// the same to it. It must never know HTTP handlers, dashboards, or how packets became rows.
package store
