package wire

import (
	"fmt"
	"sync"
	"time"
)

// Fault is the fault of the calls it matches. Empty fields match anything. Empty fields match
// anything.
type Fault struct {
	Service, Operation, Region, Account string
	Kind                                FaultKind
	// Times is how many calls it hits; 0 is all.
	Times int
	// After is how many matching calls pass unharmed before.
	After int
	// Delay is how long a Slow call waits before it is answered.
	Delay time.Duration
}

// FaultKind is a way to fail.
type FaultKind int

// The ways to fail.
const (
	// AccessDenied is an IAM denial in the service's own words.
	AccessDenied FaultKind = iota + 1
	// Throttling asks to slow down.
	Throttling
	// ServerError is a bare HTML 500, as moto and some proxies answer.
	ServerError
	// ExpiredToken refuses the credentials as expired.
	ExpiredToken
	// Reset closes the connection without an answer.
	Reset
	// Slow answers late, and rightly.
	Slow
	// NotOffered is the answer of a service to an operation it does not have.
	NotOffered
	// Deaf confirms a call and does nothing.
	Deaf
	// Empty answers 200 without a body, as some proxies do.
	Empty
	// LoginPage answers 200 with a page in HTML, as a portal in between does.
	LoginPage
	// Hollow answers 200 with the service's document and nothing in it.
	Hollow
	// Never accepts a call and does not answer.
	Never
	// Lost carries a call out and closes the connection without an answer.
	Lost
	// NotFound is a bare HTML 404, as a proxy answers that knows no such path.
	NotFound
	// Truncated is the right answer without its second half, in a whole HTTP message.
	Truncated
	// Garbled is the right answer with its second half replaced by noise.
	Garbled
	// SecondPage is the right answer, and says that there is a second page, which is a bare
	// HTML 500.
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

// next returns the fault that hits the call, if any, and counts it.
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

// Inject puts a fault in force and returns what takes it back.
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

// Failure is an error answer of a service.
type Failure struct {
	Status        int
	Code, Message string
}

// Error implements error.
func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// failure returns the answer of a fault in the words of the call's service.
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
