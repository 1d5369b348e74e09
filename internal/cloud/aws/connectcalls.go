package aws

import (
	"context"
	"sync"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

// ConnectCalls are the calls with which a person connects to a session. The clients of a
// [Connector] make only these; other clients make none that is only here. GetCallerIdentity needs
// no permission.
var ConnectCalls = []Mutation{
	{Service: "sts", Name: "GetCallerIdentity"},
	{Service: "ec2", Name: "DescribeInstances", Actions: []string{"DescribeInstances"}},
	{Service: "ssm", Name: "GetParameters", Actions: []string{"GetParameters"}},
	{Service: "ssm", Name: "DescribeSessions", Actions: []string{"DescribeSessions"}},

	{Service: "ssm", Name: "StartSession", Actions: []string{"StartSession"}, Tagged: true},
	{Service: "ssm", Name: "TerminateSession", Actions: []string{"TerminateSession"}, Harm: Halts},
}

// connectable indexes ConnectCalls by "service:Name".
var connectable = sync.OnceValue(func() map[string]bool {
	m := make(map[string]bool, len(ConnectCalls))
	for _, x := range ConnectCalls {
		m[x.API()] = true
	}
	return m
})

// guardConnects returns the middleware of a connector's calls.
func guardConnects(service string, limit limit) func(*middleware.Stack) error {
	return guarded(service, limit, "CurfewConnects", func(ctx context.Context, _ any) (func(time.Time), error) {
		if api := service + ":" + awsmiddleware.GetOperationName(ctx); !connectable()[api] {
			return nil, &RefusedError{API: api, Acting: true}
		}
		return nil, nil
	})
}
