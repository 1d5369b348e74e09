package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/view"
)

// maxStreamsPerCaller bounds the streams of one caller.
const maxStreamsPerCaller = 8

// eventsIn selects the start of a stream.
type eventsIn struct {
	Last string `header:"Last-Event-ID" doc:"The last event that was received; the stream goes on after it."`
	// After is for clients that cannot send a header.
	After int64 `query:"after" minimum:"-1" default:"-1" doc:"The same as Last-Event-ID; 0 is all events from the beginning, -1 those from now on."`
	Limit int   `query:"limit" minimum:"0" maximum:"100000" default:"0" doc:"End the stream after so many events; 0 does not."`
}

// registerEvents adds the stream of the audit log, whose entries are numbered from 1 without gaps.
func (s *Server) registerEvents() {
	o := ops.Info{
		ID: "stream-events", Method: http.MethodGet, Path: "/api/v1/events", Role: approval.RoleViewer,
		Summary: "Follow the audit log as server-sent events",
	}
	huma.Register(s.api, s.describe(o, "text/event-stream"),
		func(_ context.Context, in *eventsIn) (*huma.StreamResponse,
			error) {
			return &huma.StreamResponse{Body: func(ctx huma.Context) { s.streamEvents(ctx, in) }}, nil
		})
}

func (s *Server) streamEvents(ctx huma.Context, in *eventsIn) {
	c := callOf(ctx.Context())
	after := in.After
	if in.Last != "" {
		n, err := strconv.ParseInt(in.Last, 10, 64)
		if err != nil || n < 0 {
			writeError(ctx, problemOf(http.StatusBadRequest, "invalid_event",
				"Last-Event-ID is the number of an event", ""))
			return
		}
		after = n
	}
	if !s.listen(callerKey(c)) {
		ctx.SetHeader("Retry-After", "10")
		writeError(ctx, problemOf(http.StatusTooManyRequests, "too_many", "too many clients listen to events",
			"end a stream first"))
		return
	}
	defer s.leave(callerKey(c))
	r, w := humago.Unwrap(ctx)
	if err := s.follow(r.Context(), c, w, after, in.Limit); err != nil && r.Context().Err() == nil {
		s.Log.WarnContext(r.Context(), "a stream of events ended", "error", err)
	}
}

// errLimit ends a stream after the requested number of events.
var errLimit = errors.New("the stream has sent its events")

// listen reserves one of the streams, if there is one free.
func (s *Server) listen(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streaming >= s.Streams || s.streams[key] >= maxStreamsPerCaller {
		return false
	}
	s.streaming++
	s.streams[key]++
	return true
}

func (s *Server) leave(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streaming--
	if s.streams[key]--; s.streams[key] == 0 {
		delete(s.streams, key)
	}
}

// follow writes the entries after a number, and then new ones, until the client disconnects or the
// service ends. A client that reads nothing for two heartbeats is disconnected.
func (s *Server) follow(ctx context.Context, c *ops.Call, w http.ResponseWriter, after int64, limit int) error {
	if after < 0 {
		after = 0
		if err := govern.Entries(ctx, c.Request, action.Query{Limit: 1}, func(e view.AuditEntry) error {
			after = e.ID
			return nil
		}); err != nil {
			return err
		}
	}
	out := http.NewResponseController(w)
	flush := func() error {
		late := time.AfterFunc(2*s.Heartbeat, func() { _ = out.SetWriteDeadline(time.Unix(1, 0)) })
		defer late.Stop()
		return out.Flush()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if _, err := fmt.Fprint(w, ": events\n\n"); err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	poll, beat := time.NewTicker(s.Poll), time.NewTicker(s.Heartbeat)
	defer poll.Stop()
	defer beat.Stop()
	sent := 0
	for {
		before := sent
		err := govern.Entries(ctx, c.Request, action.Query{After: after}, func(e view.AuditEntry) error {
			text, err := json.Marshal(e)
			if err == nil {
				_, err = fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.What, text)
			}
			if err != nil {
				return err
			}
			after = e.ID
			if sent++; sent%eventBatchSize == 0 {
				err = flush()
			}
			if sent == limit {
				return errLimit
			}
			return err
		})
		if ended := flush(); ended != nil && sent > before {
			return ended
		}
		if errors.Is(err, errLimit) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Done:
			return nil
		case <-poll.C:
		case <-beat.C:
			if _, err := fmt.Fprint(w, ": still here\n\n"); err != nil {
				return err
			}
			if err := flush(); err != nil {
				return err
			}
		}
	}
}

// eventBatchSize is the number of events written before the client has to read them.
const eventBatchSize = 100
