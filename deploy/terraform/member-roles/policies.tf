# Written by go run ./test/deploy from what curfew prints with --print-iam-policy.
locals {
  scan = jsonencode({
    Version = "2012-10-17"
    Statement = concat([
      {
        Sid    = "CurfewScan"
        Effect = "Allow"
        Action = [
          "autoscaling:DescribeAutoScalingGroups",
          "autoscaling:DescribeLaunchConfigurations",
          "autoscaling:DescribePolicies",
          "autoscaling:DescribeScheduledActions",
          "ce:GetCostAndUsage",
          "cloudwatch:GetMetricData",
          "cloudwatch:ListMetrics",
          "dynamodb:DescribeTable",
          "dynamodb:ListTables",
          "dynamodb:ListTagsOfResource",
          "ec2:DescribeAddresses",
          "ec2:DescribeCapacityReservations",
          "ec2:DescribeFleets",
          "ec2:DescribeImages",
          "ec2:DescribeInstanceTypes",
          "ec2:DescribeInstances",
          "ec2:DescribeLaunchTemplateVersions",
          "ec2:DescribeLockedSnapshots",
          "ec2:DescribeNatGateways",
          "ec2:DescribeRegions",
          "ec2:DescribeReservedInstances",
          "ec2:DescribeRouteTables",
          "ec2:DescribeSnapshots",
          "ec2:DescribeSpotFleetRequests",
          "ec2:DescribeSpotInstanceRequests",
          "ec2:DescribeVolumes",
          "ec2:DescribeVpcEndpoints",
          "ecr:DescribeImages",
          "ecr:DescribeRepositories",
          "ecr:GetLifecyclePolicy",
          "ecr:ListTagsForResource",
          "eks:DescribeCluster",
          "eks:ListClusters",
          "elasticache:DescribeCacheClusters",
          "elasticache:ListTagsForResource",
          "elasticfilesystem:DescribeFileSystems",
          "elasticloadbalancing:DescribeInstanceHealth",
          "elasticloadbalancing:DescribeLoadBalancers",
          "elasticloadbalancing:DescribeTags",
          "elasticloadbalancing:DescribeTargetGroups",
          "elasticloadbalancing:DescribeTargetHealth",
          "es:DescribeDomains",
          "es:ListDomainNames",
          "es:ListTags",
          "fsx:DescribeFileSystems",
          "logs:DescribeLogGroups",
          "logs:ListTagsForResource",
          "rds:DescribeDBInstances",
          "redshift:DescribeClusters",
          "s3:GetAnalyticsConfiguration",
          "s3:GetBucketLogging",
          "s3:GetBucketObjectLockConfiguration",
          "s3:GetBucketTagging",
          "s3:GetBucketVersioning",
          "s3:GetInventoryConfiguration",
          "s3:GetLifecycleConfiguration",
          "s3:GetReplicationConfiguration",
          "s3:ListAllMyBuckets",
          "s3:ListBucket",
          "s3:ListBucketMultipartUploads",
          "s3:ListBucketVersions",
          "s3:ListMultipartUploadParts",
          "sagemaker:DescribeApp",
          "sagemaker:DescribeCluster",
          "sagemaker:DescribeEndpoint",
          "sagemaker:DescribeEndpointConfig",
          "sagemaker:DescribeNotebookInstance",
          "sagemaker:DescribeTrainingJob",
          "sagemaker:ListApps",
          "sagemaker:ListClusters",
          "sagemaker:ListEndpoints",
          "sagemaker:ListNotebookInstances",
          "sagemaker:ListTags",
          "sagemaker:ListTrainingJobs",
          "savingsplans:DescribeSavingsPlans",
          "secretsmanager:ListSecrets",
          "sts:GetCallerIdentity",
        ]
        Resource = "*"
      },
      {
        Sid    = "CurfewInventories"
        Effect = "Allow"
        Action = [
          "s3:GetObject",
        ]
        Resource = [
          "arn:${local.partition}:s3:::*/????-??-??T??-??Z/manifest.json",
          "arn:${local.partition}:s3:::*/data/????????-????-????-????-????????????.csv.gz",
          "arn:${local.partition}:s3:::*/data/????????-????-????-????-????????????.parquet",
        ]
      },
    ])
  })

  enforce = jsonencode({
    Version = "2012-10-17"
    Statement = concat([
      {
        Sid    = "CurfewScan"
        Effect = "Allow"
        Action = [
          "autoscaling:DescribeAutoScalingGroups",
          "autoscaling:DescribeLaunchConfigurations",
          "autoscaling:DescribePolicies",
          "autoscaling:DescribeScheduledActions",
          "ce:GetCostAndUsage",
          "cloudwatch:GetMetricData",
          "cloudwatch:ListMetrics",
          "dynamodb:DescribeTable",
          "dynamodb:ListTables",
          "dynamodb:ListTagsOfResource",
          "ec2:DescribeAddresses",
          "ec2:DescribeCapacityReservations",
          "ec2:DescribeFleets",
          "ec2:DescribeImages",
          "ec2:DescribeInstanceTypes",
          "ec2:DescribeInstances",
          "ec2:DescribeLaunchTemplateVersions",
          "ec2:DescribeLockedSnapshots",
          "ec2:DescribeNatGateways",
          "ec2:DescribeRegions",
          "ec2:DescribeReservedInstances",
          "ec2:DescribeRouteTables",
          "ec2:DescribeSnapshots",
          "ec2:DescribeSpotFleetRequests",
          "ec2:DescribeSpotInstanceRequests",
          "ec2:DescribeVolumes",
          "ec2:DescribeVpcEndpoints",
          "ecr:DescribeImages",
          "ecr:DescribeRepositories",
          "ecr:GetLifecyclePolicy",
          "ecr:ListTagsForResource",
          "eks:DescribeCluster",
          "eks:ListClusters",
          "elasticache:DescribeCacheClusters",
          "elasticache:ListTagsForResource",
          "elasticfilesystem:DescribeFileSystems",
          "elasticloadbalancing:DescribeInstanceHealth",
          "elasticloadbalancing:DescribeLoadBalancers",
          "elasticloadbalancing:DescribeTags",
          "elasticloadbalancing:DescribeTargetGroups",
          "elasticloadbalancing:DescribeTargetHealth",
          "es:DescribeDomains",
          "es:ListDomainNames",
          "es:ListTags",
          "fsx:DescribeFileSystems",
          "logs:DescribeLogGroups",
          "logs:ListTagsForResource",
          "rds:DescribeDBInstances",
          "redshift:DescribeClusters",
          "s3:GetAnalyticsConfiguration",
          "s3:GetBucketLogging",
          "s3:GetBucketObjectLockConfiguration",
          "s3:GetBucketTagging",
          "s3:GetBucketVersioning",
          "s3:GetInventoryConfiguration",
          "s3:GetLifecycleConfiguration",
          "s3:GetReplicationConfiguration",
          "s3:ListAllMyBuckets",
          "s3:ListBucket",
          "s3:ListBucketMultipartUploads",
          "s3:ListBucketVersions",
          "s3:ListMultipartUploadParts",
          "sagemaker:DescribeApp",
          "sagemaker:DescribeCluster",
          "sagemaker:DescribeEndpoint",
          "sagemaker:DescribeEndpointConfig",
          "sagemaker:DescribeNotebookInstance",
          "sagemaker:DescribeTrainingJob",
          "sagemaker:ListApps",
          "sagemaker:ListClusters",
          "sagemaker:ListEndpoints",
          "sagemaker:ListNotebookInstances",
          "sagemaker:ListTags",
          "sagemaker:ListTrainingJobs",
          "savingsplans:DescribeSavingsPlans",
          "secretsmanager:ListSecrets",
          "sts:GetCallerIdentity",
        ]
        Resource = "*"
      },
      {
        Sid    = "CurfewInventories"
        Effect = "Allow"
        Action = [
          "s3:GetObject",
        ]
        Resource = [
          "arn:${local.partition}:s3:::*/????-??-??T??-??Z/manifest.json",
          "arn:${local.partition}:s3:::*/data/????????-????-????-????-????????????.csv.gz",
          "arn:${local.partition}:s3:::*/data/????????-????-????-????-????????????.parquet",
        ]
      },
      {
        Sid    = "CurfewReadToAct"
        Effect = "Allow"
        Action = [
          "application-autoscaling:DescribeScalableTargets",
          "cloudtrail:LookupEvents",
          "ec2:DescribeInstanceAttribute",
          "ec2:DescribeInstanceTypes",
          "ec2:DescribeSpotInstanceRequests",
        ]
        Resource = "*"
      },
      {
        Sid    = "CurfewSave"
        Effect = "Allow"
        Action = [
          "ec2:CreateSnapshot",
          "ec2:CreateSnapshots",
        ]
        Resource = "*"
      },
      {
        Sid    = "CurfewTag"
        Effect = "Allow"
        Action = [
          "autoscaling:CreateOrUpdateTags",
          "autoscaling:DeleteTags",
          "ec2:CreateTags",
          "ec2:DeleteTags",
          "ecr:TagResource",
          "ecr:UntagResource",
          "elasticfilesystem:TagResource",
          "elasticfilesystem:UntagResource",
          "elasticloadbalancing:AddTags",
          "elasticloadbalancing:RemoveTags",
          "es:AddTags",
          "es:RemoveTags",
          "fsx:TagResource",
          "fsx:UntagResource",
          "logs:TagResource",
          "logs:UntagResource",
          "rds:AddTagsToResource",
          "rds:RemoveTagsFromResource",
          "sagemaker:AddTags",
          "sagemaker:DeleteTags",
          "secretsmanager:TagResource",
          "secretsmanager:UntagResource",
        ]
        Resource = "*"
        Condition = {
          "Null" = {
            "aws:TagKeys" = "false"
          }
        }
      },
      {
        Sid    = "CurfewStartWith"
        Effect = "Allow"
        Action = [
          "ec2:StartInstances",
        ]
        Resource = [
          "arn:${local.partition}:license-manager:*:*:license-configuration:*",
          "arn:${local.partition}:resource-groups:*:*:group/*",
        ]
      },
      ], [
      for names in [var.governed_buckets] : {
        Sid    = "CurfewBuckets"
        Effect = "Allow"
        Action = [
          "s3:PutBucketTagging",
          "s3:PutLifecycleConfiguration",
        ]
        Resource = [for name in names : "arn:${local.partition}:s3:::${name}"]
      } if length(names) > 0
      ], [
      {
        Sid    = "CurfewAct"
        Effect = "Allow"
        Action = [
          "autoscaling:SetDesiredCapacity",
          "autoscaling:TerminateInstanceInAutoScalingGroup",
          "autoscaling:UpdateAutoScalingGroup",
          "ec2:DeleteVolume",
          "ec2:ReleaseAddress",
          "ec2:StartInstances",
          "ec2:StopInstances",
          "ec2:TerminateInstances",
          "ecr:DeleteLifecyclePolicy",
          "ecr:PutLifecyclePolicy",
          "logs:DeleteRetentionPolicy",
          "logs:PutRetentionPolicy",
          "sagemaker:DeleteEndpoint",
          "sagemaker:DeleteNotebookInstance",
          "sagemaker:StartNotebookInstance",
          "sagemaker:StopNotebookInstance",
          "sagemaker:StopTrainingJob",
          "sagemaker:UpdateEndpointWeightsAndCapacities",
        ]
        Resource = "*"
        Condition = {
          "StringEqualsIgnoreCase" = {
            "aws:ResourceTag/curfew:managed" = "true"
          }
        }
      },
      ], [
      for i, tags in var.governed_tags : {
        Sid    = "CurfewActGoverned${i + 1}"
        Effect = "Allow"
        Action = [
          "autoscaling:SetDesiredCapacity",
          "autoscaling:TerminateInstanceInAutoScalingGroup",
          "autoscaling:UpdateAutoScalingGroup",
          "ec2:DeleteVolume",
          "ec2:ReleaseAddress",
          "ec2:StartInstances",
          "ec2:StopInstances",
          "ec2:TerminateInstances",
          "ecr:DeleteLifecyclePolicy",
          "ecr:PutLifecyclePolicy",
          "logs:DeleteRetentionPolicy",
          "logs:PutRetentionPolicy",
          "sagemaker:DeleteEndpoint",
          "sagemaker:DeleteNotebookInstance",
          "sagemaker:StartNotebookInstance",
          "sagemaker:StopNotebookInstance",
          "sagemaker:StopTrainingJob",
          "sagemaker:UpdateEndpointWeightsAndCapacities",
        ]
        Resource = "*"
        Condition = {
          StringEqualsIgnoreCase = { for key, value in tags : "aws:ResourceTag/${key}" => value }
        }
      }
      ], [
      {
        Sid    = "CurfewScale"
        Effect = "Allow"
        Action = [
          "autoscaling:SetDesiredCapacity",
          "autoscaling:TerminateInstanceInAutoScalingGroup",
          "sagemaker:UpdateEndpointWeightsAndCapacities",
        ]
        Resource = "*"
        Condition = {
          "StringEqualsIgnoreCase" = {
            "aws:ResourceTag/curfew:scale" = "true"
          }
        }
      },
      {
        Sid    = "CurfewNeverPersistent"
        Effect = "Deny"
        Action = [
          "autoscaling:UpdateAutoScalingGroup",
          "ec2:DeleteVolume",
          "ec2:ReleaseAddress",
          "ec2:StopInstances",
          "ec2:TerminateInstances",
          "ecr:PutLifecyclePolicy",
          "logs:PutRetentionPolicy",
          "sagemaker:DeleteEndpoint",
          "sagemaker:DeleteNotebookInstance",
          "sagemaker:StopNotebookInstance",
          "sagemaker:StopTrainingJob",
        ]
        Resource = "*"
        Condition = {
          "StringEqualsIgnoreCase" = {
            "aws:ResourceTag/curfew:lifetime" = "persistent"
          }
        }
      },
      {
        Sid    = "CurfewNeverScalePersistent"
        Effect = "Deny"
        Action = [
          "autoscaling:SetDesiredCapacity",
          "autoscaling:TerminateInstanceInAutoScalingGroup",
          "sagemaker:UpdateEndpointWeightsAndCapacities",
        ]
        Resource = "*"
        Condition = {
          "StringEqualsIgnoreCase" = {
            "aws:ResourceTag/curfew:lifetime" = "persistent"
          }
          "StringNotEqualsIgnoreCase" = {
            "aws:ResourceTag/curfew:scale" = "true"
          }
        }
      },
      {
        Sid    = "CurfewNeverRetag"
        Effect = "Deny"
        Action = [
          "autoscaling:*Tag*",
          "ec2:*Tag*",
          "ecr:*Tag*",
          "elasticfilesystem:*Tag*",
          "elasticloadbalancing:*Tag*",
          "es:*Tag*",
          "fsx:*Tag*",
          "logs:*Tag*",
          "rds:*Tag*",
          "sagemaker:*Tag*",
          "secretsmanager:*Tag*",
        ]
        Resource = "*"
        Condition = {
          "ForAnyValue:StringEqualsIgnoreCase" = {
            "aws:TagKeys" = distinct(concat(["curfew:installation", "curfew:lifetime", "curfew:managed", "curfew:owner", "curfew:scale", "curfew:session"], flatten([for tags in var.governed_tags : keys(tags)])))
          }
          "Null" = {
            "ec2:CreateAction" = "true"
          }
        }
      },
    ])
  })
}
