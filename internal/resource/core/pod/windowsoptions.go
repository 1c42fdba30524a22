package pod

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coracle-io/coracle/internal/resource/validators"
)

// Limits of the parts of a Windows account name, in characters.
const (
	maxWindowsSpecKiB = 64
	maxWindowsDomain  = 256
	maxWindowsUser    = 104
)

// The forms of Windows domains and users. A domain has a NetBIOS name or a DNS
// name.
var (
	controlCharacters = regexp.MustCompile(`[[:cntrl:]]+`)
	netBIOSName       = regexp.MustCompile(`^[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}$`)
	windowsDomainName = regexp.MustCompile(`^` + dnsLabel + `(\.` + dnsLabel + `)*$`)
	dotsOrSpaces      = regexp.MustCompile(`^[. ]+$`)
)

// dnsLabel is one part of a DNS name.
const dnsLabel = `[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?`

const notInUserNames = `"/\:;|=,+*?<>@[]`

func validateWindowsOptions(o *corev1.WindowsSecurityContextOptions, path *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	var errs field.ErrorList
	if name := o.GMSACredentialSpecName; name != nil {
		errs = append(errs, validators.Subdomain(path.Child("gmsaCredentialSpecName"), *name)...)
	}
	if spec := o.GMSACredentialSpec; spec != nil {
		at := path.Child("gmsaCredentialSpec")
		if *spec == "" {
			errs = append(errs, field.Invalid(at, *spec, "gmsaCredentialSpec cannot be an empty string"))
		} else if len(*spec) > maxWindowsSpecKiB*1024 {
			errs = append(errs, field.Invalid(at, *spec, fmt.Sprintf("gmsaCredentialSpec size must be under %d KiB", maxWindowsSpecKiB)))
		}
	}
	if o.RunAsUserName != nil {
		errs = append(errs, validators.Problems(path.Child("runAsUserName"), *o.RunAsUserName, windowsUserProblems(*o.RunAsUserName))...)
	}
	return errs
}

// windowsUserProblems returns what is wrong with a name of the form
// DOMAIN\USER or USER.
func windowsUserProblems(name string) []string {
	domain, user, domainGiven := strings.Cut(name, `\`)
	switch {
	case name == "":
		return []string{"runAsUserName cannot be an empty string"}
	case controlCharacters.MatchString(name):
		return []string{"runAsUserName cannot contain control characters"}
	case strings.Contains(user, `\`):
		return []string{"runAsUserName cannot contain more than one backslash"}
	case !domainGiven:
		domain, user = "", name
	}
	var problems []string
	if len(domain) >= maxWindowsDomain {
		problems = append(problems, fmt.Sprintf("runAsUserName's Domain length must be under %d characters", maxWindowsDomain))
	}
	if domainGiven && !netBIOSName.MatchString(domain) && !windowsDomainName.MatchString(domain) {
		problems = append(problems, "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	}
	if user == "" {
		problems = append(problems, "runAsUserName's User cannot be empty")
	} else if len(user) > maxWindowsUser {
		problems = append(problems, fmt.Sprintf("runAsUserName's User length must not be longer than %d characters", maxWindowsUser))
	}
	if dotsOrSpaces.MatchString(user) {
		problems = append(problems, "runAsUserName's User cannot contain only periods or spaces")
	}
	if strings.ContainsAny(user, notInUserNames) {
		problems = append(problems, "runAsUserName's User cannot contain the following characters: "+notInUserNames)
	}
	return problems
}
