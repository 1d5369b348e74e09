package aws_test

import (
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
)

// TestMachineParameter checks that parameters are decrypted, and that a missing one is an error.
func TestMachineParameter(t *testing.T) {
	for _, v := range scratch.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	t.Setenv("AWS_ENDPOINT_URL", scratch.MotoURL()) // its role is not one of curfew's
	cfg := scratch.Config("us-east-1")
	cfg.BaseEndpoint = awssdk.String(scratch.MotoURL())
	_, err := ssm.NewFromConfig(cfg).PutParameter(t.Context(), &ssm.PutParameterInput{
		Name: awssdk.String("/team/token"), Value: awssdk.String("it's secret"), Type: types.ParameterTypeSecureString,
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := aws.NewOnMachine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.Parameter(t.Context(), "/team/token"); err != nil || got != "it's secret" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := m.Parameter(t.Context(), "/team/other"); err == nil {
		t.Errorf("got %q and no error", got)
	}
}
