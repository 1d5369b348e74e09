package wire

import (
	"fmt"
	"sync"
	"time"
)

// Fault is a fault of matching calls. Empty fields match anything.
type Fault struct {
	Service, Operation, Region, Account string
	Kind                                FaultKind
	// Times is the number of calls with the fault; 0 is all.
	Times int
	// After is the number of matching calls that succeed first.
	After int
	// Delay is the delay of Slow calls.
	Delay time.Duration
}

// FaultKind is a kind of fault.
type FaultKind int

// Kinds of faults.
const (
	// AccessDenied is an IAM denial in the service's own format.
	AccessDenied FaultKind = iota + 1
	// Throttling asks to slow down.
	Throttling
	// ServerError is a bare HTML 500, as from moto and some proxies.
	ServerError
	// ExpiredToken refuses the credentials as expired.
	ExpiredToken
	// Reset closes the connection without a response.
	Reset
	// Slow delays the correct response.
	Slow
	// NotOffered is a service's response to an unsupported operation.
	NotOffered
	// Deaf confirms a call and does nothing.
	Deaf
	// Empty responds 200 without a body, like some proxies.
	Empty
	// LoginPage responds 200 with an HTML page, like a portal.
	LoginPage
	// Hollow responds 200 with an empty document of the service.
	Hollow
	// Never accepts a call and does not respond.
	Never
	// Lost carries out a call and closes the connection without a response.
	Lost
	// NotFound is a bare HTML 404, as from a proxy that does not know the path.
	NotFound
	// Truncated is the correct response without its second half, in a complete HTTP message.
	Truncated
	// Garbled is the correct response with its second half replaced by noise.
	Garbled
	// SecondPage is the correct response with a token of a second page, which is a bare HTML 500.
	SecondPage
)

// faults holds the faults in force.
type faults struct {
	mu  sync.Mutex
	all []*armed
}

type armed struct {
	Fault
	seen, hit int
}

func (a *armed) matches(c *Call) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(a.Service, c.Service) && is(a.Operation, c.Operation) && is(a.Region, c.Region) &&
		is(a.Account, c.Account)
}

// next returns the fault of a call, if any, and counts it.
func (f *faults) next(c *Call) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.all {
		if !a.matches(c) {
			continue
		}
		if a.seen++; a.seen <= a.After || (a.Times > 0 && a.hit >= a.Times) {
			continue
		}
		a.hit++
		return a.Fault, true
	}
	return Fault{}, false
}

// Inject adds a fault and returns a function that removes it.
func (s *Server) Inject(f Fault) (remove func()) {
	a := &armed{Fault: f}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.all = append(s.faults.all, a)
	return func() {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		for i, b := range s.faults.all {
			if a == b {
				s.faults.all = append(s.faults.all[:i], s.faults.all[i+1:]...)
				return
			}
		}
	}
}

// Failure is an error response of a service.
type Failure struct {
	Status        int
	Code, Message string
}

// Error implements error.
func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// failure returns the response of a fault in the format of the call's service.
func failure(f FaultKind, c *Call) *Failure {
	ec2, s3 := c.Service == "ec2", c.Service == "s3"
	json := c.Protocol == JSON || c.Protocol == RestJSON
	pick := func(forEC2, forS3, forJSON, otherwise Failure) *Failure {
		out := otherwise
		switch {
		case ec2:
			out = forEC2
		case s3:
			out = forS3
		case json:
			out = forJSON
		}
		return &out
	}
	switch f {
	case AccessDenied:
		m := fmt.Sprintf(
			"User: arn:aws:iam::%s:user/auditor is not authorized to perform: %s because no identity-based "+
				"policy allows the %s action",
			c.Account, c.Name(), c.Name())
		return pick(Failure{403, "UnauthorizedOperation", "You are not authorized to perform this operation. " + m},
			Failure{403, "AccessDenied", m}, Failure{400, "AccessDeniedException", m}, Failure{403, "AccessDenied", m})
	case Throttling:
		return pick(Failure{503, "RequestLimitExceeded", "Request limit exceeded."},
			Failure{503, "SlowDown", "Please reduce your request rate."},
			Failure{400, "ThrottlingException", "Rate exceeded"}, Failure{400, "Throttling", "Rate exceeded"})
	case ExpiredToken:
		m := "The security token included in the request is expired"
		return pick(Failure{400, "RequestExpired", "Request has expired."},
			Failure{400, "ExpiredToken", "The provided token has expired."},
			Failure{400, "ExpiredTokenException", m}, Failure{403, "ExpiredToken", m})
	}
	return pick(Failure{400, "InvalidAction", "The action " + c.Operation + " is not valid for this web service."},
		Failure{405, "MethodNotAllowed", "The specified method is not allowed against this resource."},
		Failure{400, "UnknownOperationException", "The operation " + c.Operation + " is unknown."},
		Failure{400, "InvalidAction", "Could not find operation " + c.Operation})
}
