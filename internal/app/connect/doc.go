// Package connect reaches machines of sessions: shells, commands, copies, ports, SSH entries and
// editors.
package connect
