package wire

import "encoding/json"

// Machine returns the Price List document of an on-demand Linux machine with shared tenancy, at an
// hourly price in dollars.
func Machine(instanceType, region, hourly string) Product {
	attributes := map[string]string{"instanceType": instanceType, "regionCode": region, "operatingSystem": "Linux",
		"tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand",
		"licenseModel": "No License required", "operation": "RunInstances", "servicecode": "AmazonEC2",
		"usagetype": "BoxUsage:" + instanceType, "currentGeneration": "Yes", "locationType": "AWS Region"}
	sku := "SKU" + instanceType + region
	doc := map[string]any{
		"product":     map[string]any{"productFamily": "Compute Instance", "sku": sku, "attributes": attributes},
		"serviceCode": "AmazonEC2",
		"terms": map[string]any{"OnDemand": map[string]any{sku + ".JRTCKXETXF": map[string]any{
			"sku": sku, "offerTermCode": "JRTCKXETXF", "effectiveDate": "2026-07-01T00:00:00Z",
			"termAttributes": map[string]any{},
			"priceDimensions": map[string]any{sku + ".JRTCKXETXF.6YS6EN2CT7": map[string]any{
				"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "rateCode": sku + ".JRTCKXETXF.6YS6EN2CT7",
				"appliesTo":    []string{},
				"description":  "$" + hourly + " per On Demand Linux " + instanceType + " Instance Hour",
				"pricePerUnit": map[string]any{"USD": hourly}}}}}},
		"version": "20260706000000", "publicationDate": "2026-07-06T00:00:00Z",
	}
	b, err := json.Marshal(doc)
	if err != nil {
		panic("wire: " + err.Error())
	}
	return Product{ServiceCode: "AmazonEC2", Attributes: attributes, Document: string(b)}
}

// CacheNode returns a node of ElastiCache in the price list, with reserved and on-demand hours.
func CacheNode(instanceType, engine, region, hourly string) Product {
	return managed(map[string]string{
		"instanceType": instanceType, "cacheEngine": engine, "regionCode": region, "servicecode": "AmazonElastiCache",
		"locationType": "AWS Region",
		"usagetype":    "NodeUsage:" + instanceType, "operation": "CreateCacheCluster:" + engine},
		"Cache Instance", hourly,
		"0.0000000000")
}

// WarehouseNode returns a node of Redshift in the price list.
func WarehouseNode(instanceType, region, hourly string) Product {
	return managed(map[string]string{
		"instanceType": instanceType, "regionCode": region, "servicecode": "AmazonRedshift",
		"locationType": "AWS Region",
		"usagetype":    "Node:" + instanceType, "operation": "RunComputeNode:0001"}, "Compute Instance", hourly)
}

// DatabaseIOPS returns provisioned IOPS of RDS in the price list, in one zone.
func DatabaseIOPS(usageType, region, monthly string) Product {
	return pricedBy(map[string]string{"regionCode": region, "servicecode": "AmazonRDS", "locationType": "AWS Region",
		"usagetype": usageType, "databaseEngine": "Any", "deploymentOption": "Single-AZ"},
		"Provisioned IOPS", "IOPS-Mo",
		monthly)
}

// PublicAddress returns a public IPv4 address in use in the price list, which has no family.
func PublicAddress(region, hourly string) Product {
	return pricedBy(map[string]string{"regionCode": region, "servicecode": "AmazonVPC", "locationType": "AWS Region",
		"usagetype": "USE1-PublicIPv4:InUseAddress", "group": "VPCPublicIPv4Address"}, "", "Hrs", hourly)
}

func managed(attributes map[string]string, family string, prices ...string) Product {
	return pricedBy(attributes, family, "Hrs", prices...)
}

func pricedBy(attributes map[string]string, family, unit string, prices ...string) Product {
	dimensions := map[string]any{}
	for i, usd := range prices {
		dimensions["R"+string(rune('a'+i))] = map[string]any{
			"unit": unit, "beginRange": "0", "endRange": "Inf", "pricePerUnit": map[string]any{"USD": usd},
		}
	}
	attributes["productFamily"] = family
	b, err := json.Marshal(map[string]any{
		"product":     map[string]any{"productFamily": family, "attributes": attributes},
		"serviceCode": attributes["servicecode"],
		"terms": map[string]any{
			"OnDemand": map[string]any{
				"T": map[string]any{"effectiveDate": "2026-07-01T00:00:00Z", "priceDimensions": dimensions},
			},
		},
		"publicationDate": "2026-07-06T00:00:00Z"})
	if err != nil {
		panic("wire: " + err.Error())
	}
	return Product{ServiceCode: attributes["servicecode"], Attributes: attributes, Document: string(b)}
}
