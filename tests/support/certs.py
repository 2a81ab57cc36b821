"""Certificates made at run time."""

import ssl

import trustme


class Authority:
    def __init__(self):
        self._authority = trustme.CA()
        self._certificates = {}

    def server(self, name="localhost", *, client=False):
        """A context for a server called `name`; with `client` it demands the client's certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certificate(name).configure_cert(context)
        if client:
            context.verify_mode = ssl.CERT_REQUIRED
            self._authority.configure_trust(context)
        return context

    def client(self, *, trust=True, name=None):
        """A context for a client; without `trust` it does not know the authority; with `name` it shows a
        certificate of its own.
        """
        context = ssl.create_default_context()
        if trust:
            self._authority.configure_trust(context)
        if name:
            self._certificate(name).configure_cert(context)
        return context

    def _certificate(self, name):
        if name not in self._certificates:
            self._certificates[name] = (
                self._authority.issue_cert(name, "127.0.0.1")
                if name == "localhost"
                else self._authority.issue_cert(name)
            )
        return self._certificates[name]

    def files(self, folder, name="localhost"):
        """The certificate and key of `name` as files in a folder (paths), for servers that are started by command
        line.
        """
        certificate = self._certificate(name)
        chain, key = folder / f"{name}.pem", folder / f"{name}.key"
        chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        key.write_bytes(certificate.private_key_pem.bytes())
        return chain, key
