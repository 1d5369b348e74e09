package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/pricing/types"
)

const (
	// pricingRegion is the region of the price list's endpoint.
	pricingRegion  = "us-east-1"
	productsPage   = 100
	spotPricesPage = 1000
)

// Products streams the price list's product documents of a service ("AmazonEC2") as raw JSON, from
// all pages in order. Filters are exact values of product attributes ("regionCode": "us-east-1").
// It stops at visit's first error.
func (c *Cloud) Products(ctx context.Context, service string, filters map[string]string,
	visit func(document []byte) error) error {
	client := pricing.NewFromConfig(c.configured("pricing", pricingRegion))
	in := &pricing.GetProductsInput{
		ServiceCode: &service, FormatVersion: awssdk.String("aws_v1"), MaxResults: awssdk.Int32(productsPage),
	}
	for _, field := range slices.Sorted(maps.Keys(filters)) {
		in.Filters = append(in.Filters, types.Filter{
			Type: types.FilterTypeTermMatch, Field: awssdk.String(field), Value: awssdk.String(filters[field]),
		})
	}
	return pages(ctx, func(token *string) (*string, error) {
		in.NextToken = token
		out, err := client.GetProducts(ctx, in)
		if err != nil {
			return nil, fetchError(ctx, "read the price list of "+service, err)
		}
		for _, document := range out.PriceList {
			if err := visit([]byte(document)); err != nil {
				return nil, err
			}
		}
		return out.NextToken, nil
	})
}

// SpotPrice is one change of a spot price.
type SpotPrice struct {
	Type, Region, Zone string
	// Product is EC2's product description: "Linux/UNIX".
	Product string
	// Price is in dollars an hour as printed by the provider.
	Price string
	Time  time.Time
}

// SpotPrices streams the changes of spot prices in a region since a time, with the price in force
// then for each type and zone, from all pages. No types means all. It stops at visit's first error.
func (c *Cloud) SpotPrices(ctx context.Context, region string, machineTypes []string, since time.Time,
	visit func(SpotPrice) error) error {
	if err := checkName(region); err != nil {
		return err
	}
	client := ec2.NewFromConfig(c.configured("ec2", region))
	in := &ec2.DescribeSpotPriceHistoryInput{
		StartTime: &since, ProductDescriptions: []string{"Linux/UNIX"}, MaxResults: awssdk.Int32(spotPricesPage),
	}
	for _, t := range machineTypes {
		in.InstanceTypes = append(in.InstanceTypes, ec2types.InstanceType(t))
	}
	return pages(ctx, func(token *string) (*string, error) {
		in.NextToken = token
		out, err := client.DescribeSpotPriceHistory(ctx, in)
		if err != nil {
			return nil, fetchError(ctx, "read the spot prices of "+region, err)
		}
		for _, p := range out.SpotPriceHistory {
			price := SpotPrice{Type: string(p.InstanceType), Region: region, Zone: awssdk.ToString(p.AvailabilityZone),
				Product: string(p.ProductDescription), Price: awssdk.ToString(p.SpotPrice), Time: utc(p.Timestamp)}
			if err := visit(price); err != nil {
				return nil, err
			}
		}
		return out.NextToken, nil
	})
}

// clientsOf returns clients of a region outside of an observation.
func (c *Cloud) clientsOf(region string) *clients {
	return &clients{config: func(service string) awssdk.Config { return c.configured(service, region) }}
}

// configured returns the configuration of a client outside of an observation.
func (c *Cloud) configured(service, region string) awssdk.Config {
	cfg := c.config.Copy()
	cfg.Region = region
	cfg.APIOptions = append(cfg.APIOptions[:len(cfg.APIOptions):len(cfg.APIOptions)],
		guard(service, newTally(), c.limits().of("", region, service)))
	return cfg
}

func fetchError(ctx context.Context, attempt string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", attempt, ctx.Err())
	}
	return wrapped(attempt, err)
}

// PlacementScore is the likelihood, 1 to 10, that AWS gives a request for spot machines in a zone.
type PlacementScore struct {
	Region string
	// ZoneID identifies the zone for every account ("use1-az1"): names of zones differ by account.
	ZoneID string
	Score  int
}

// PlacementScores reads the current scores for machines of a type, by zone of a region. It launches
// nothing.
func (c *Cloud) PlacementScores(ctx context.Context, machineType string, machines int, region string) (
	[]PlacementScore, error) {
	if err := checkName(region); err != nil {
		return nil, err
	}
	client := ec2.NewFromConfig(c.configured("ec2", region))
	in := &ec2.GetSpotPlacementScoresInput{
		InstanceTypes: []string{machineType}, TargetCapacity: awssdk.Int32(int32(min(machines, 1<<20))),
		RegionNames: []string{region}, SingleAvailabilityZone: awssdk.Bool(true),
	}
	var out []PlacementScore
	err := pages(ctx, func(token *string) (*string, error) {
		in.NextToken = token
		page, err := client.GetSpotPlacementScores(ctx, in)
		if err != nil {
			return nil, fetchError(ctx, "read the spot placement scores of "+machineType+" in "+region, err)
		}
		for _, s := range page.SpotPlacementScores {
			out = append(out, PlacementScore{
				Region: awssdk.ToString(s.Region), ZoneID: awssdk.ToString(s.AvailabilityZoneId),
				Score: int(awssdk.ToInt32(s.Score)),
			})
		}
		return page.NextToken, nil
	})
	return out, err
}
