"""Renews certificates. Imports cryptography, which takes long, only when something must be issued."""

from datetime import datetime

from gangline.base.certificates.issued import CertificateSet, Renewals, due_renewals, signing_authority


def renewed_certificates(issued: CertificateSet | None, hosts: tuple[str, ...], now: datetime) -> CertificateSet:
    """The same certificates, with those issued anew that must be."""
    if issued is not None and not any(due_renewals(issued, hosts, now)):
        return issued
    # Imported here: a server that finds valid certificates does not need it.
    from gangline.base.certificates.x509_pem import issue, issue_ca

    due = due_renewals(issued, hosts, now) if issued is not None else Renewals(authority=True, server=True, admin=True)
    authorities = tuple(each for each in issued.authorities if each.is_valid(now)) if issued is not None else ()
    if due.authority:
        authorities = (*authorities, issue_ca(now))
    signer = signing_authority(authorities, now)
    return CertificateSet(
        authorities,
        issued.server if issued is not None and not due.server else issue(signer, "gangline", now, hosts=hosts),
        issued.admin
        if issued is not None and not due.admin
        else issue(signer, "admin", now, groups=("system:masters",)),
        issued.hosts if issued is not None and not due.server else hosts,
    )
