// Package server implements `curfew serve`: the accounts that it reads, their rounds and audits,
// the configuration in force, and the HTTP server.
package server
