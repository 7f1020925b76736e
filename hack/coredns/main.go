// CoreDNS for the tests on real nodes, with the plugins that they need. With all of its plugins, which bring the
// libraries of several clouds, it takes twice as long to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// The order in which plugins see a request.
	dnsserver.Directives = []string{"bind", "errors", "cache", "template", "kubernetes"}
	coremain.Run()
}
