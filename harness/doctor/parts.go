package doctor

import (
	"context"
	"fmt"

	"github.com/overbook/overbook/harness/provision"
)

// orDocker makes the check of a local part look at Docker as provision does:
// where the part is not here at all, an image that Docker has will do. A part
// that is here and broken stays an error, as it does when it is brought up.
func orDocker(o provision.Options, part string, c Check) Check {
	local := c.Run
	c.Run = func(ctx context.Context) (string, error) {
		if o.Prefer == "docker" {
			return provision.DockerHas(ctx, part)
		}
		detail, err := local(ctx)
		if o.Prefer == "local" || !provision.IsAbsent(err) {
			return detail, err
		}
		image, dockerErr := provision.DockerHas(ctx, part)
		if dockerErr != nil {
			return "", err
		}
		return fmt.Sprintf("%s (%v)", image, err), nil
	}
	return c
}

// givenCheck asks the part at the URL that was given.
func givenCheck(name string, o provision.Options) Check {
	return Check{
		Name: name, FixText: "check that it runs and the address, or leave the URL out",
		Run: func(ctx context.Context) (string, error) {
			env, err := provision.Up(ctx, o)
			if err != nil {
				return "", err
			}
			return describe(env), env.Close(ctx)
		},
	}
}

func describe(env *provision.Environment) string {
	switch {
	case env.Postgres != nil:
		return env.Postgres.Describe()
	case env.WireMock != nil:
		return env.WireMock.Describe()
	}
	return env.Redis.Describe()
}
