package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// OnMachine is the AWS client of a session's agent, with the role of its machine: instance metadata
// (IMDSv2), and permitted parameters (ssm:GetParameter, and kms:Decrypt unless the key is AWS's).
type OnMachine struct {
	clients *clients
}

// NewOnMachine reads the configuration of this machine. It makes no request.
func NewOnMachine(ctx context.Context) (*OnMachine, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithEC2IMDSRegion())
	if err != nil {
		return nil, fmt.Errorf("read the configuration of AWS: %w", err)
	}
	return &OnMachine{&clients{config: func(string) aws.Config { return cfg }}}, nil
}

// maxMetadata bounds a response of the metadata service in bytes.
const maxMetadata = 64 << 10

// get reads one entry; empty if it does not exist.
func (m *OnMachine) get(ctx context.Context, path string) ([]byte, error) {
	out, err := metadataClient(m.clients).GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if answer := (*smithyhttp.ResponseError)(nil); errors.As(err, &answer) &&
		answer.HTTPStatusCode() == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of the machine's metadata: %w", path, err)
	}
	defer func() { _ = out.Content.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(out.Content, maxMetadata))
}

// Address returns the machine's address in its network.
func (m *OnMachine) Address(ctx context.Context) (string, error) {
	data, err := m.get(ctx, "local-ipv4")
	return string(data), err
}

// Notice returns the announced time of a spot interruption, about two minutes ahead; zero if none
// is announced.
func (m *OnMachine) Notice(ctx context.Context) (time.Time, error) {
	data, err := m.get(ctx, "spot/instance-action")
	if err != nil || len(data) == 0 {
		return time.Time{}, err
	}
	var notice struct {
		Time time.Time `json:"time"`
	}
	if err := json.Unmarshal(data, &notice); err != nil {
		return time.Time{}, fmt.Errorf("read spot/instance-action of the machine's metadata: %w", err)
	}
	return notice.Time, nil
}

// Parameter reads a parameter, decrypted.
func (m *OnMachine) Parameter(ctx context.Context, name string) (string, error) {
	out, err := ssmClient(m.clients).GetParameter(ctx, &ssm.GetParameterInput{
		Name:           &name,
		WithDecryption: aws.Bool(true),
	})
	if err != nil {
		return "", err
	}
	if out.Parameter == nil || out.Parameter.Value == nil {
		return "", errors.New("the answer has no value")
	}
	return *out.Parameter.Value, nil
}
