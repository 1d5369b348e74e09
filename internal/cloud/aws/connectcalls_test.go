package aws

import (
	"slices"
	"testing"
)

// TestOnlyConnectorsConnect checks that no client that reads, acts or launches can connect to a
// machine.
func TestOnlyConnectorsConnect(t *testing.T) {
	for _, api := range []string{"ssm:StartSession", "ssm:TerminateSession"} {
		if index[api] != nil || mutable()[api] || launchable()[api] {
			t.Errorf("another client than a connector may call %s", api)
		}
		if !connectable()[api] {
			t.Errorf("a connector may not call %s", api)
		}
	}
	for _, api := range []string{"ssm:SendCommand", "ec2:RunInstances", "ec2:TerminateInstances"} {
		if connectable()[api] {
			t.Errorf("a connector may call %s", api)
		}
	}
}

// TestConnectCallsMatchPolicy checks that every call of a connector is covered by the test of
// people's policy in terraform/backbone.
func TestConnectCallsMatchPolicy(t *testing.T) {
	for _, c := range ConnectCalls {
		if len(c.Actions) > 0 && !slices.ContainsFunc(SessionCalls(), func(s SessionCall) bool {
			return s.By == ByPerson && s.Service == c.Service && s.Name == c.Name
		}) {
			t.Errorf("%s is not among the calls of people", c.API())
		}
	}
}
