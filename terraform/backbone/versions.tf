# The backbone: what stays when sessions come and go. docs/terraform.md describes it.

terraform {
  required_version = ">= 1.7"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0"
    }
  }

  # Filled in by terraform init -backend-config=FILE.
  backend "s3" {}
}

provider "aws" {
  region = var.region
}

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

data "aws_availability_zones" "available" {
  state = "available"
}

locals {
  account   = data.aws_caller_identity.current.account_id
  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.region

  # The version of the parameters under /curfew/backbone/ (docs/terraform.md).
  contract = "2"

  tags = merge(var.tags, {
    "curfew:lifetime" = "persistent"
    "curfew:backbone" = var.name
  })
}
