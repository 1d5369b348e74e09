# Written by go run ./test/deploy from the machine policy, internal/cloud/aws/sessionroles.go.
locals {
  machine = [
    {
      Sid    = "ReadControl"
      Effect = "Allow"
      Action = [
        "s3:GetObject",
      ]
      Resource = [
        "${local.sessions}/sessions/control/$${aws:PrincipalTag/curfew:session}/*",
      ]
    },
    {
      Sid    = "WriteControl"
      Effect = "Allow"
      Action = [
        "s3:PutObject",
      ]
      Resource = [
        "${local.sessions}/sessions/control/$${aws:PrincipalTag/curfew:session}/events-*",
        "${local.sessions}/sessions/control/$${aws:PrincipalTag/curfew:session}/status-*",
      ]
    },
    {
      Sid    = "Work"
      Effect = "Allow"
      Action = [
        "s3:DeleteObject",
        "s3:GetObject",
        "s3:PutObject",
      ]
      Resource = [
        "${local.sessions}/sessions/work/$${aws:PrincipalTag/curfew:installation}/$${aws:PrincipalTag/curfew:session-name}/*",
      ]
    },
    {
      Sid    = "ListOwn"
      Effect = "Allow"
      Action = [
        "s3:ListBucket",
      ]
      Resource = [
        "${local.sessions}",
      ]
      Condition = {
        "StringLike" = {
          "s3:prefix" = [
            "sessions/control/$${aws:PrincipalTag/curfew:session}/*",
            "sessions/work/$${aws:PrincipalTag/curfew:installation}/$${aws:PrincipalTag/curfew:session-name}/*",
          ]
        }
      }
    },
    {
      Sid    = "ReadAgent"
      Effect = "Allow"
      Action = [
        "s3:GetObject",
      ]
      Resource = [
        "${local.sessions}/sessions/bin/*",
      ]
    },
    {
      Sid    = "ReadImages"
      Effect = "Allow"
      Action = [
        "ecr:BatchCheckLayerAvailability",
        "ecr:BatchGetImage",
        "ecr:GetDownloadUrlForLayer",
      ]
      Resource = [
        "${aws_ecr_repository.sessions.arn}",
      ]
    },
    {
      Sid    = "ReadParameters"
      Effect = "Allow"
      Action = [
        "ssm:GetParameter",
        "ssm:GetParameters",
      ]
      Resource = [
        "arn:${local.partition}:ssm:${local.region}:${local.account}:parameter/curfew/backbone/*",
        "arn:${local.partition}:ssm:${local.region}:${local.account}:parameter/curfew/sessions/shared/*",
        "arn:${local.partition}:ssm:${local.region}:${local.account}:parameter/curfew/sessions/names/$${aws:PrincipalTag/curfew:session-name}/*",
      ]
    },
    {
      Sid    = "ReadSecrets"
      Effect = "Allow"
      Action = [
        "secretsmanager:GetSecretValue",
      ]
      Resource = [
        "arn:${local.partition}:secretsmanager:${local.region}:${local.account}:secret:curfew/sessions/shared/*",
        "arn:${local.partition}:secretsmanager:${local.region}:${local.account}:secret:curfew/sessions/names/$${aws:PrincipalTag/curfew:session-name}/*",
      ]
    },
    {
      Sid    = "WriteLogs"
      Effect = "Allow"
      Action = [
        "logs:CreateLogStream",
        "logs:DescribeLogStreams",
        "logs:PutLogEvents",
      ]
      Resource = [
        "${aws_cloudwatch_log_group.this["sessions"].arn}:*",
        "${aws_cloudwatch_log_group.this["terminals"].arn}:*",
      ]
    },
    {
      Sid    = "Key"
      Effect = "Allow"
      Action = [
        "kms:Decrypt",
        "kms:GenerateDataKey",
      ]
      Resource = [
        "${aws_kms_key.logs.arn}",
      ]
    },
    {
      Sid    = "Agent"
      Effect = "Allow"
      Action = [
        "ecr:GetAuthorizationToken",
        "logs:DescribeLogGroups",
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
      ]
      Resource = [
        "*",
      ]
    },
    {
      Sid    = "NeverOrders"
      Effect = "Deny"
      Action = [
        "ec2-instance-connect:*",
        "ec2:CreateTags",
        "ec2:StopInstances",
        "ec2:TerminateInstances",
        "iam:*",
        "ssm:CreateAssociation*",
        "ssm:ResumeSession",
        "ssm:SendCommand",
        "ssm:StartAutomationExecution",
        "ssm:StartSession",
        "ssm:UpdateAssociation*",
        "sts:AssumeRole",
      ]
      Resource = [
        "*",
      ]
    },
  ]
}
