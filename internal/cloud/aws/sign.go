package aws

import (
	"context"
	"fmt"
	"net/http"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
)

// Signer returns a function that signs requests to Amazon Managed Prometheus with the credentials
// of a profile, which are loaded on the first request.
func Signer(profile, region string, now func() time.Time) func(ctx context.Context, r *http.Request,
	bodySHA256 string) error {
	signer := v4.NewSigner()
	var credentials awssdk.CredentialsProvider
	return func(ctx context.Context, r *http.Request, bodySHA256 string) error {
		if credentials == nil {
			cfg, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(profile),
				config.WithRegion(region))
			if err != nil {
				return fmt.Errorf("%w: %s", ErrNoCredentials, oneLine(innermost(err).Error()))
			}
			if credentials = cfg.Credentials; credentials == nil {
				return ErrNoCredentials
			}
		}
		creds, err := credentials.Retrieve(ctx)
		if err != nil {
			return fmt.Errorf("%w: %s", ErrNoCredentials, oneLine(innermost(err).Error()))
		}
		return signer.SignHTTP(ctx, creds, r, bodySHA256, "aps", region, now().UTC())
	}
}
