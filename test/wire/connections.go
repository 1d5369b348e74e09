package wire

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Connections are the sessions of Systems Manager, which moto lacks.
type Connections struct {
	server *Server
	now    func() time.Time

	mu   sync.Mutex
	all  []Connection
	late int
	// refused counts the connections to a machine that were refused because of Late.
	refused map[string]int
}

// Late delays the agents of machines: the first n connections to each are refused.
func (s *Connections) Late(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = n
}

// Connection is a session of Systems Manager.
type Connection struct {
	ID, Account, Region, Target, Document, Owner, Reason string
	Parameters                                           map[string]any
	Started, Ended                                       time.Time
}

func newConnections(s *Server, now func() time.Time) *Connections {
	return &Connections{server: s, now: now, refused: map[string]int{}}
}

// All returns all connections, including closed ones.
func (s *Connections) All() []Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Connection(nil), s.all...)
}

func (s *Connections) answers() map[string]Answer {
	return map[string]Answer{
		"ssm:StartSession": s.start, "ssm:ResumeSession": s.resume, "ssm:TerminateSession": s.end,
		"ssm:DescribeSessions": s.describe,
	}
}

// start opens a connection to a running machine.
func (s *Connections) start(ctx context.Context, c *Call) (*Reply, error) {
	target := asString(c.Input["Target"])
	refused := &Failure{400, "TargetNotConnected", target + " is not connected."}
	if !strings.HasPrefix(target, "i-") {
		return nil, refused
	}
	doc, err := s.server.ask(ctx, c, url.Values{"Action": {"DescribeInstances"}, "InstanceId.1": {target}})
	switch {
	case isFailure(err):
		return nil, refused
	case err != nil:
		return nil, err
	}
	if state := doc.Find("instanceState"); state == nil || state.Kid("name") == nil ||
		state.Kid("name").Text != "running" {
		return nil, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused[target] < s.late {
		s.refused[target]++
		return nil, refused
	}
	x := Connection{
		ID: fmt.Sprintf("session-%017x", len(s.all)+1), Account: c.Account, Region: c.Region, Target: target,
		Document: asString(c.Input["DocumentName"]),
		Owner:    "arn:aws:iam::" + c.Account + ":user/auditor", Reason: asString(c.Input["Reason"]),
		Parameters: asMap(c.Input["Parameters"]), Started: s.now().UTC()}
	s.all = append(s.all, x)
	return s.opened(x), nil
}

// opened returns the response for the Session Manager plugin.
func (s *Connections) opened(x Connection) *Reply {
	return &Reply{Fields: map[string]any{"SessionId": x.ID, "TokenValue": "token-of-" + x.ID,
		"StreamUrl": "wss://ssmmessages." + x.Region + ".amazonaws.com/v1/data-channel/" + x.ID +
			"?role=publish_subscribe"}}
}

// find returns the index of a connection of the caller.
func (s *Connections) find(c *Call) (int, error) {
	id := asString(c.Input["SessionId"])
	for i, x := range s.all {
		if x.ID == id && x.Account == c.Account && x.Region == c.Region {
			return i, nil
		}
	}
	return 0, &Failure{400, "DoesNotExistException", "Session " + id + " does not exist"}
}

func (s *Connections) resume(_ context.Context, c *Call) (*Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.find(c)
	if err != nil || !s.all[i].Ended.IsZero() {
		return nil, &Failure{
			400, "DoesNotExistException", "Session " + asString(c.Input["SessionId"]) + " does not exist",
		}
	}
	return s.opened(s.all[i]), nil
}

// end closes a connection. It is idempotent.
func (s *Connections) end(_ context.Context, c *Call) (*Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, err := s.find(c)
	if err != nil {
		return nil, err
	}
	if s.all[i].Ended.IsZero() {
		s.all[i].Ended = s.now().UTC()
	}
	return &Reply{Fields: map[string]any{"SessionId": s.all[i].ID}}, nil
}

// describe lists open connections (State "Active") or closed ones ("History").
func (s *Connections) describe(_ context.Context, c *Call) (*Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := asString(c.Input["State"])
	if state != "Active" && state != "History" {
		return nil, &Failure{400, "ValidationException", "State is Active or History"}
	}
	matching := func(x Connection) bool {
		for _, f := range asList(c.Input["Filters"]) {
			value := asString(asMap(f)["value"])
			switch asString(asMap(f)["key"]) {
			case "Target":
				if x.Target != value {
					return false
				}
			case "SessionId":
				if x.ID != value {
					return false
				}
			case "Owner":
				if x.Owner != value {
					return false
				}
			}
		}
		return true
	}
	var out []any
	for _, x := range s.all {
		if x.Account != c.Account || x.Region != c.Region || (state == "Active") != x.Ended.IsZero() || !matching(x) {
			continue
		}
		d := map[string]any{
			"SessionId": x.ID, "Target": x.Target, "Status": "Connected",
			"StartDate": seconds(x.Started), "Owner": x.Owner,
			"DocumentName": x.Document, "Reason": x.Reason,
		}
		if !x.Ended.IsZero() {
			d["Status"], d["EndDate"] = "Terminated", seconds(x.Ended)
		}
		out = append(out, d)
	}
	found, next, err := page(c, out, "MaxResults", 50)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{"Sessions": append([]any{}, found...)}
	if next != "" {
		fields["NextToken"] = next
	}
	return &Reply{Fields: fields}, nil
}
